//! Requests to the server of the viewer, as bytes and as what they ask for.

// Imports of requests
use std::fmt;

// What a request asks for
/// What a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Asked {
    Page,
    /// The elements of a variable of a file.
    Data {
        file: usize,
        variable: usize,
    },
    /// Sums over rings about a centre, at samples of the dimensions before those of the scan.
    Rings {
        file: usize,
        variable: usize,
        before: Vec<usize>,
        centre: [f64; 2],
    },
    /// The mean pattern of the probes of a bit mask.
    Mean {
        file: usize,
        variable: usize,
        before: Vec<usize>,
        probes: Vec<u8>,
    },
}

/// A request that can be answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    pub asked: Asked,
    /// Whether only the head of the answer is wanted.
    pub head_only: bool,
    pub range: RangeAsked,
    /// Whether the client wants to send another request.
    pub keeps_alive: bool,
}

/// Which bytes of the answer are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RangeAsked {
    All,
    /// From the first number up to and with the second.
    Bytes(u64, Option<u64>),
    Last(u64),
    /// Several ranges, or none that can be understood.
    Unknown,
}

// Why a request is refused
/// Why a request is refused: the status of the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Refusal {
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    HeadTooLarge,
    VersionNotSupported,
}

impl Refusal {
    /// Code and words of the status, and a sentence for readers.
    pub(crate) fn status(self) -> (&'static str, &'static str) {
        match self {
            Self::BadRequest => ("400 Bad Request", "The request cannot be understood."),
            Self::Forbidden => (
                "403 Forbidden",
                "The server answers to 127.0.0.1 and localhost with its port, and to no other name.",
            ),
            Self::NotFound => (
                "404 Not Found",
                "There is nothing here. The address is the whole one that lenslet printed when it started.",
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.status().1)
    }
}

// Parse the head of a request
/// Bytes of a request, at most.
pub(crate) const LONGEST_HEAD: usize = 16 << 10;

/// What may be asked of a server: its port and the secret of its address.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub port: u16,
    pub token: String,
}

impl Guard {
    /// The request at the beginning of some bytes, with its length; `None` where it goes on.
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
    /// What a parsed head asks for; what has a body, or comes to another host, is refused.
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

    /// Whether a host is this server: a page of another name, which leads here, is not to read it.
    fn is_own(&self, host: &[u8]) -> bool {
        let own = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        own.iter().any(|own| host.eq_ignore_ascii_case(own.as_bytes()))
    }
}

// Read the path of a request
/// Whether two texts are one; how long it takes does not depend on where they differ.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

impl Guard {
    /// What a path asks for, if it begins with the secret.
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

/// A number of a file or a variable.
fn count(digits: &str) -> Result<usize, Refusal> {
    let plain = (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().ok_or(Refusal::NotFound)
}

// Read the parameters of a request
/// The part of an address behind the question mark.
struct Parameters<'q>(&'q str);

impl Parameters<'_> {
    /// The value of a parameter, empty where there is none.
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

    /// Numbers with points between them: samples of the dimensions before those of the scan.
    fn prefix(&self) -> Result<Vec<usize>, Refusal> {
        let text = self.text("prefix")?;
        let numbers = text.split('.').filter(|_| !text.is_empty());
        numbers.map(|digits| count(digits).map_err(|_| Refusal::BadRequest)).collect()
    }
}

/// The bytes of a text in base64 with - and _, with padding or without.
fn base64url(text: &str) -> Result<Vec<u8>, Refusal> {
    use base64::Engine as _;
    let text = text.trim_end_matches('=');
    base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).map_err(|_| Refusal::BadRequest)
}

// Read a range of bytes
impl RangeAsked {
    /// The range of a header such as `bytes=0-1023`.
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

    /// First byte and number of bytes of so many; `None` where the range has none of them.
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
