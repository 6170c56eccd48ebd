// Tangled from book/src/view-requests.md: edit there, or here and run cargo tangle stitch.
//! Requests to the server of the viewer: parsing, checks and byte ranges.

// What a request asks for
/// Resource that a client requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Asked {
    Page,
    /// Elements of a variable of a file.
    Data {
        file: usize,
        variable: usize,
    },
    /// Sums over rings about a centre, at the indices `before` along the dimensions before those of the scan.
    Rings {
        file: usize,
        variable: usize,
        before: Vec<usize>,
        centre: [f64; 2],
    },
    /// Mean pattern of the probes of a bit mask.
    Mean {
        file: usize,
        variable: usize,
        before: Vec<usize>,
        probes: Vec<u8>,
    },
}

// Request and its range of bytes
/// A request that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub asked: Asked,
    /// Whether only the head of the answer is requested.
    pub head_only: bool,
    pub range: RangeAsked,
    /// Whether the client keeps the connection open for another request.
    pub keeps_alive: bool,
}

/// Range of bytes that is requested.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RangeAsked {
    All,
    /// From the first number up to and including the second.
    Bytes(u64, Option<u64>),
    Last(u64),
    /// Several ranges, or an invalid one.
    Unknown,
}

// Why a request is refused
/// Reason for a refusal, which is the status of the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Refusal {
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    VersionNotSupported,
}

// Status and sentence of a refusal
impl Refusal {
    /// Status code with its name, and a sentence for the user.
    pub(crate) fn status(self) -> (&'static str, &'static str) {
        match self {
            Self::BadRequest => ("400 Bad Request", "The request cannot be understood."),
            Self::Forbidden => (
                "403 Forbidden",
                "The server answers only under the names 127.0.0.1 and localhost, with its port.",
            ),
            Self::NotFound => (
                "404 Not Found",
                "Nothing is served at this address. Use the whole address that lenslet printed when it started.",
            ),
            Self::MethodNotAllowed => {
                ("405 Method Not Allowed", "The server only reads: GET and HEAD are answered.")
            }
            Self::HeadTooLarge => {
                ("431 Request Header Fields Too Large", "The request is longer than 16384 bytes.")
            }
            Self::VersionNotSupported => {
                ("505 HTTP Version Not Supported", "The server speaks HTTP/1.1.")
            }
        }
    }
}

// Parse the head of a request
/// Most bytes of the head of a request.
pub(crate) const LONGEST_HEAD: usize = 16 << 10;

/// Port of a server and secret of its address, against which requests are checked.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub port: u16,
    pub token: String,
}

impl Guard {
    /// Request at the beginning of these bytes, with its length; `None` if it is incomplete.
    pub(crate) fn parse(&self, bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Request::new(&mut headers);
        let length = match parsed.parse(&bytes[..bytes.len().min(LONGEST_HEAD)]) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() >= LONGEST_HEAD => {
                return Err(Refusal::HeadTooLarge);
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::HeadTooLarge),
            Err(httparse::Error::Version) => return Err(Refusal::VersionNotSupported),
            Err(_) => return Err(Refusal::BadRequest),
        };
        let request = self.request(&parsed)?;
        Ok(Some((request, length)))
    }
}

// Check a request before it is read
impl Guard {
    /// Request of a parsed head; one with a body, or for another host, is refused.
    fn request(&self, parsed: &httparse::Request) -> Result<Request, Refusal> {
        let all = |name: &'static str| {
            let named =
                parsed.headers.iter().filter(move |one| one.name.eq_ignore_ascii_case(name));
            named.map(|one| one.value.trim_ascii())
        };
        let head_only = match parsed.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Refusal::MethodNotAllowed),
        };
        let mut hosts = all("host");
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Refusal::BadRequest);
        };
        if !self.is_own(host) {
            return Err(Refusal::Forbidden);
        }
        let has_body = all("content-length").any(|length| length != b"0");
        if has_body || all("transfer-encoding").next().is_some() {
            return Err(Refusal::BadRequest);
        }
        // Range and end of a request
        let mut ranges = all("range");
        let range = match (ranges.next(), ranges.next()) {
            (None, _) => RangeAsked::All,
            (Some(one), None) => RangeAsked::of(one),
            _ => RangeAsked::Unknown,
        };
        let closes = all("connection").any(|value| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        let asked = self.asked(parsed.path.unwrap_or_default())?;
        Ok(Request { asked, head_only, range, keeps_alive: !closes && parsed.version == Some(1) })
    }

    // Recognise the own host
    /// Whether a host is this server, and not a domain name that resolves to 127.0.0.1.
    fn is_own(&self, host: &[u8]) -> bool {
        let own = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        own.iter().any(|own| host.eq_ignore_ascii_case(own.as_bytes()))
    }
}

// Compare the secret of an address
/// Whether two texts are equal; the duration of the comparison does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

// Read what a path asks for
impl Guard {
    /// Resource that a path requests, if the path begins with the secret.
    fn asked(&self, target: &str) -> Result<Asked, Refusal> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix('/').ok_or(Refusal::NotFound)?;
        let (token, path) = path.split_once('/').unwrap_or((path, "?"));
        if !is_same(token.as_bytes(), self.token.as_bytes()) {
            return Err(Refusal::NotFound);
        }
        if path.is_empty() {
            return Ok(Asked::Page);
        }
        let parts: Vec<&str> = path.split('/').collect();
        let [what, file, variable] = parts[..] else { return Err(Refusal::NotFound) };
        let (file, variable) = (count(file)?, count(variable)?);
        let values = Parameters(query);
        match what {
            "data" => Ok(Asked::Data { file, variable }),
            "rings" => {
                let (before, centre) =
                    (values.prefix()?, [values.number("cx")?, values.number("cy")?]);
                Ok(Asked::Rings { file, variable, before, centre })
            }
            "mean" => {
                let (before, probes) = (values.prefix()?, base64url(&values.text("probes")?)?);
                Ok(Asked::Mean { file, variable, before, probes })
            }
            _ => Err(Refusal::NotFound),
        }
    }
}

/// Number of a file or a variable.
fn count(digits: &str) -> Result<usize, Refusal> {
    let plain = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().ok_or(Refusal::NotFound)
}

// Read the parameters of a request
/// Query of an address: the part after the question mark.
struct Parameters<'q>(&'q str);

impl Parameters<'_> {
    /// Value of a parameter; empty if it is absent.
    fn text(&self, name: &str) -> Result<String, Refusal> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(other, _)| *other == name).map_or("", |(_, value)| value);
        let (mut bytes, mut rest) = (Vec::new(), value.as_bytes());
        while let [first, others @ ..] = rest {
            rest = others;
            match (first, rest) {
                (b'%', [high, low, others @ ..]) => {
                    let digit = |byte: &u8| char::from(*byte).to_digit(16);
                    let code = digit(high).zip(digit(low)).ok_or(Refusal::BadRequest)?;
                    bytes.push((16 * code.0 + code.1) as u8);
                    rest = others;
                }
                (b'%', _) => return Err(Refusal::BadRequest),
                (b'+', _) => bytes.push(b' '),
                (byte, _) => bytes.push(*byte),
            }
        }
        String::from_utf8(bytes).map_err(|_| Refusal::BadRequest)
    }

    fn number(&self, name: &str) -> Result<f64, Refusal> {
        let number = self.text(name)?.parse::<f64>().ok().filter(|x| x.is_finite());
        number.ok_or(Refusal::BadRequest)
    }

    /// Numbers with full stops between them: indices along the dimensions before those of the scan.
    fn prefix(&self) -> Result<Vec<usize>, Refusal> {
        let text = self.text("prefix")?;
        let numbers = text.split('.').filter(|_| !text.is_empty());
        numbers.map(|digits| count(digits).map_err(|_| Refusal::BadRequest)).collect()
    }
}

/// Bytes of a text in URL-safe base64 (with - and _), with or without padding.
fn base64url(text: &str) -> Result<Vec<u8>, Refusal> {
    use base64::Engine as _;
    let text = text.trim_end_matches('=');
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).map_err(|_| Refusal::BadRequest)
}

// Read a range of bytes
impl RangeAsked {
    /// Range of a header such as `bytes=0-1023`.
    fn of(header: &[u8]) -> Self {
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| digits.parse::<u64>().unwrap_or(u64::MAX))
        };
        let range = std::str::from_utf8(header).ok().and_then(|it| it.strip_prefix("bytes="));
        match range.and_then(|range| range.trim().split_once('-')) {
            Some(("", last)) => number(last).map_or(Self::Unknown, Self::Last),
            Some((first, "")) => number(first).map_or(Self::Unknown, |n| Self::Bytes(n, None)),
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => Self::Bytes(first, Some(last)),
                _ => Self::Unknown,
            },
            None => Self::Unknown,
        }
    }

    /// First byte and number of bytes of the range within `all` bytes; `None` if the range contains none of them.
    pub(crate) fn within(self, all: u64) -> Option<(u64, u64)> {
        match self {
            Self::All => Some((0, all)),
            Self::Bytes(first, last) => {
                let end = last.map_or(all, |last| last.saturating_add(1).min(all));
                (first < end).then(|| (first, end - first))
            }
            Self::Last(count) => {
                let count = count.min(all);
                (count > 0).then(|| (all - count, count))
            }
            Self::Unknown => None,
        }
    }
}

// Tests of requests
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn guard() -> Guard {
        Guard { port: 8123, token: "5ec4e7".into() }
    }

    /// Request for a target, with a host and further header lines.
    fn parse(target: &str, lines: &str) -> Result<Option<Request>, Refusal> {
        let text = format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:8123\r\n{lines}\r\n");
        guard().parse(text.as_bytes()).map(|parsed| parsed.map(|(request, _)| request))
    }

    // Targets of requests
    #[test]
    fn targets_ask_for_what_there_is() {
        let asked = |target: &str| parse(target, "").map(|request| request.unwrap().asked);
        assert_eq!(asked("/5ec4e7/"), Ok(Asked::Page));
        assert_eq!(asked("/5ec4e7/?x=1"), Ok(Asked::Page));
        assert_eq!(asked("/5ec4e7/data/1/20"), Ok(Asked::Data { file: 1, variable: 20 }));
        let rings =
            Asked::Rings { file: 0, variable: 3, before: vec![1, 12], centre: [63.5, -2.0] };
        assert_eq!(asked("/5ec4e7/rings/0/3?cx=63.5&cy=-2&prefix=1.12"), Ok(rings.clone()));
        assert_eq!(asked("/5ec4e7/rings/0/3?prefix=1%2E12&cy=%2d2&cx=6.35e1"), Ok(rings));
        let mean = |probes: &[u8]| Asked::Mean {
            file: 0,
            variable: 3,
            before: vec![],
            probes: probes.into(),
        };
        assert_eq!(asked("/5ec4e7/mean/0/3?prefix=&probes=-_8"), Ok(mean(&[0xfb, 0xff])));
        assert_eq!(asked("/5ec4e7/mean/0/3?probes=AQ%3D%3D"), Ok(mean(&[1])));
        for nowhere in [
            "/",
            "/5ec4e7",
            "/5ec4e8/",
            "/5ec4e/",
            "/5ec4e77/",
            "//5ec4e7/",
            "/5ec4e7/../5ec4e7/",
            "/5ec4e7/data/0/0/",
            "/5ec4e7/data/0/../0",
            "/5ec4e7/data/0",
            "/5ec4e7/data//0",
            "/5ec4e7/data/0/-1",
            "/5ec4e7/data/0/99999999999999999999",
            "/5ec4e7/data/0/1e2",
            "/5ec4e7/etc/0/0",
            "/5ec4e7/..",
            "/5ec4e7/.",
            "/5ec4e7/%2e%2e/0/0",
            "/5ec4e7/data/%30/0",
            "*",
            "http://127.0.0.1:8123/5ec4e7/",
            "/5EC4E7/",
        ] {
            assert_eq!(asked(nowhere), Err(Refusal::NotFound), "{nowhere}");
        }
        for bad in [
            "rings/0/3?cx=1",
            "rings/0/3?cx=nan&cy=1",
            "rings/0/3?cx=1&cy=inf",
            "rings/0/3?cx=1&cy=1&prefix=.",
            "rings/0/3?cx=1&cy=1&prefix=-1",
            "mean/0/3?probes=%",
            "mean/0/3?probes=%zz",
            "mean/0/3?probes=A",
            "mean/0/3?probes=%ff",
            "mean/0/3?probes=AQ&prefix=1.x",
        ] {
            assert_eq!(asked(&format!("/5ec4e7/{bad}")), Err(Refusal::BadRequest), "{bad}");
        }
    }

    // Heads of requests
    #[test]
    fn heads_that_are_no_plain_request_are_refused() {
        let refused = |text: &str| guard().parse(text.as_bytes()).err();
        let with = |lines: &str| parse("/5ec4e7/", lines).err();
        let get = "GET /5ec4e7/ HTTP/1.1\r\n";
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "get"] {
            let text = format!("{method} /5ec4e7/ HTTP/1.1\r\nHost: 127.0.0.1:8123\r\n\r\n");
            assert_eq!(refused(&text), Some(Refusal::MethodNotAllowed), "{method}");
        }
        assert_eq!(refused(&format!("{get}\r\n")), Some(Refusal::BadRequest));
        for other in [
            "127.0.0.1",
            "127.0.0.1:80",
            "evil.example:8123",
            "localhost",
            "127.0.0.1:8123.evil.example",
            "[::1]:8123",
            "",
        ] {
            assert_eq!(
                refused(&format!("{get}Host: {other}\r\n\r\n")),
                Some(Refusal::Forbidden),
                "{other}"
            );
        }
        assert_eq!(refused(&format!("{get}Host: LOCALHOST:8123\r\n\r\n")), None);
        assert_eq!(with("Host: localhost:8123\r\n"), Some(Refusal::BadRequest));
        assert_eq!(with("Content-Length: 5\r\n"), Some(Refusal::BadRequest));
        assert_eq!(with("Content-Length: 0\r\n"), None);
        assert_eq!(with("Transfer-Encoding: chunked\r\n"), Some(Refusal::BadRequest));
        assert_eq!(refused("GET /5ec4e7/ HTTP/2.0\r\n\r\n"), Some(Refusal::VersionNotSupported));
        assert_eq!(refused("GET /5ec4e7/ HTTP/1.1\r\nHost : a\r\n\r\n"), Some(Refusal::BadRequest));
        assert_eq!(refused("\0\0\0\0"), Some(Refusal::BadRequest));
        assert_eq!(with(&"A: b\r\n".repeat(70)), Some(Refusal::HeadTooLarge));
        let long = format!("{get}Host: 127.0.0.1:8123\r\nA: {}", "b".repeat(LONGEST_HEAD));
        assert_eq!(refused(&long), Some(Refusal::HeadTooLarge));
        assert_eq!(guard().parse(&long.as_bytes()[..1000]), Ok(None));
        // Connections that go on
        let keeps = |lines: &str| parse("/5ec4e7/", lines).unwrap().unwrap().keeps_alive;
        assert!(keeps("") && keeps("Connection: keep-alive\r\n"));
        assert!(!keeps("Connection: close\r\n") && !keeps("Connection: x, CLOSE\r\n"));
        let (old, length) = guard()
            .parse(b"HEAD /5ec4e7/ HTTP/1.0\r\nHost: localhost:8123\r\n\r\nmore")
            .unwrap()
            .unwrap();
        assert!(old.head_only && !old.keeps_alive && length == 48);
    }

    // Ranges of requests
    #[test]
    fn ranges_are_cut_to_what_there_is() {
        let within = |header: &str| {
            let request =
                parse("/5ec4e7/data/0/0", &format!("Range: {header}\r\n")).unwrap().unwrap();
            request.range.within(1000)
        };
        assert_eq!(
            parse("/5ec4e7/data/0/0", "").unwrap().unwrap().range.within(1000),
            Some((0, 1000))
        );
        for (header, expected) in [
            ("bytes=0-0", (0, 1)),
            ("bytes=10-19", (10, 10)),
            ("bytes=990-", (990, 10)),
            ("bytes=-10", (990, 10)),
            ("bytes=-5000", (0, 1000)),
            ("bytes=0-99999999999999", (0, 1000)),
            ("bytes=5-99999999999999999999999999", (5, 995)),
            ("bytes=999-18446744073709551615", (999, 1)),
        ] {
            assert_eq!(within(header), Some(expected), "{header}");
        }
        for header in [
            "bytes=5-2",
            "bytes=1000-",
            "bytes=1000-1001",
            "bytes=-0",
            "bytes=-",
            "bytes=",
            "bytes=a-b",
            "bytes=0-1,5-6",
            "bytes=+1-2",
            "bytes=1 - 2",
            "items=0-1",
            "bytes 0-1",
            "bytes=99999999999999999999-",
            "bytes=0-1\r\nRange: bytes=0-1",
            "bytes=0x1-0x2",
            "",
        ] {
            assert_eq!(within(header), None, "{header}");
        }
        assert_eq!(RangeAsked::Last(7).within(0), None);
        assert_eq!(RangeAsked::Bytes(u64::MAX, Some(u64::MAX)).within(u64::MAX), None);
    }

    // Any bytes as a request
    proptest! {
        #[test]
        fn any_bytes_are_answered_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(guard().parse(&bytes));
        }

        #[test]
        fn any_target_is_answered_or_refused(target in "[ -~]{0,80}", lines in "([A-Za-z-]{1,8}: ?[ -~]{0,40}\r\n){0,4}") {
            drop(parse(&format!("/5ec4e7/{target}"), &lines));
            for what in ["data", "rings", "mean"] {
                drop(parse(&format!("/5ec4e7/{what}/0/0?{target}"), &lines));
            }
        }

        #[test]
        fn any_range_stays_inside(header in "bytes=[0-9]{0,22}-[0-9]{0,22}", all in any::<u64>()) {
            if let Some((first, count)) = RangeAsked::of(header.as_bytes()).within(all) {
                prop_assert!(count > 0 && first.checked_add(count).is_some_and(|end| end <= all));
            }
        }
    }
}
