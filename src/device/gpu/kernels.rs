// Tangled from book/src/gpu-launches.md: edit there, or here and run cargo tangle stitch.
//! Kernels by their names, and their arguments by the names of parameters.

// Declare the kernels of a source
/// Declares the kernels of a source: a structure of all of them, and for each a structure of its arguments.
///
/// A field is a parameter, by its name and in its order: `[T]` is a buffer of the program's `real` numbers, `usize` and `bool` are an
/// `int`, and `(Option [T])` may be no buffer. A type of the source is given `as` a text where it has no counterpart. A test that is
/// named as the structure compares all of them with the source.
macro_rules! kernels {
    (
        $(#[$about:meta])*
        $scope:vis struct $Kernels:ident in $source:ident {
            $(
                $(#[$does:meta])*
                $kernel:ident: $Arguments:ident $(<$T:ident>)? {
                    $($field:ident: $kind:tt $(as $c:literal)?),* $(,)?
                }
            )*
        }
    ) => {
        // Structure of a kernel's arguments
        $(
            $(#[$does])*
            $scope struct $Arguments<'a $(, $T)?> {
                $($scope $field: $crate::device::gpu::kernels::kernels!(@field 'a $kind)),*
            }

            impl$(<$T: $crate::numerics::real::Real>)? $crate::device::gpu::KernelArguments
                for $Arguments<'_ $(, $T)?>
            {
                type Kernel = for<'a> fn($Arguments<'a $(, $T)?>);

                fn list(&self) -> impl AsRef<[$crate::device::gpu::Argument<'_>]> {
                    [$($crate::device::gpu::Argument::from(self.$field)),*]
                }
            }
        )*

        // Structure of the kernels of a source
        $(#[$about])*
        $scope struct $Kernels<T> {
            $(
                $(#[$does])*
                $scope $kernel:
                    $crate::device::gpu::Kernel<for<'a> fn($Arguments<'a $(, $T)?>)>
            ),*
        }

        impl<T: $crate::numerics::real::Real> $Kernels<T> {
            /// Compiles the source for numbers T and these sizes, and finds its kernels; one that is missing is an error.
            $scope fn load(
                gpu: &$crate::device::gpu::Gpu,
                sizes: &[(&str, usize)],
            ) -> Result<Self, $crate::error::Error> {
                let program = gpu.program::<T>(&$source, sizes)?;
                Ok(Self { $($kernel: program.kernel(stringify!($kernel))?),* })
            }
        }

        // Compare kernels with their source
        #[cfg(test)]
        #[test]
        #[allow(non_snake_case)] // its name is that of the kernels
        fn $Kernels() {
            let ours = [$((
                stringify!($kernel),
                &[$((
                    $crate::device::gpu::kernels::kernels!(@declared $kind $($c)?),
                    stringify!($field),
                )),*][..],
            )),*];
            $crate::device::gpu::kernels::check_signatures(&$source, &ours);
        }
    };
    // Types of a kernel's parameters
    (@field $life:lifetime [$number:ty]) => { $crate::device::gpu::BufferView<$life, $number> };
    (@field $life:lifetime (Option [$number:ty])) => {
        Option<$crate::device::gpu::BufferView<$life, $number>>
    };
    (@field $life:lifetime $number:ty) => { $number };
    (@declared [$number:ty] $c:literal) => { concat!($c, " *") };
    (@declared f32 $c:literal) => { $c };
    (@declared [T]) => { "real *" };
    (@declared [Complex<T>]) => { "Complex *" };
    (@declared [[i32; 2]]) => { "int2 *" };
    (@declared [[f64; 2]]) => { "double2 *" };
    (@declared (Option $kind:tt)) => { $crate::device::gpu::kernels::kernels!(@declared $kind) };
    (@declared [f64]) => { "double *" };
    (@declared [i32]) => { "int *" };
    (@declared [u32]) => { "unsigned *" };
    (@declared f64) => { "double" };
    (@declared usize) => { "int" };
    (@declared bool) => { "int" };
    (@declared [$number:ident]) => { concat!(stringify!($number), " *") };
}
pub(crate) use kernels;

// Signatures of a source
/// Name of a kernel, and its parameters: type and name.
#[cfg(test)]
type Signature<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// Asserts that a source has exactly these kernels with these parameters.
#[cfg(test)]
pub(crate) fn check_signatures(source: &super::KernelSource, ours: &[Signature]) {
    let theirs = signatures(source.text);
    let own = |(kernel, parameters): &Signature| {
        let parameters = parameters.iter().map(|(kind, name)| format!("{kind} {name}"));
        (kernel.to_string(), parameters.collect::<Vec<_>>())
    };
    let mut ours: Vec<_> = ours.iter().map(own).collect();
    ours.sort();
    assert_eq!(ours, theirs, "kernels of {}", source.name);
}

/// The kernels of a source by their names, each with the types and names of its parameters.
#[cfg(test)]
fn signatures(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut found: Vec<_> = text.split("__global__").skip(1).map(signature).collect();
    found.sort();
    found
}

// Read one signature
/// The signature that begins a text: `void`, perhaps the bounds of a launch, the name, and parameters.
#[cfg(test)]
fn signature(text: &str) -> (String, Vec<String>) {
    let mut text = text.trim_start().trim_start_matches("void").trim_start();
    if let Some(bounds) = text.strip_prefix("__launch_bounds__") {
        let mut depth = 0;
        let end = bounds.find(|letter| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth == 0
        });
        text = &bounds[end.unwrap() + 1..];
    }
    let (name, rest) = text.trim_start().trim_start_matches("void").split_once('(').unwrap();
    let parameters = rest.split_once(')').unwrap().0.split(',').map(|parameter| {
        let parameter = parameter.replace('*', " * ");
        let words = parameter.split_whitespace();
        words.filter(|word| !["const", "__restrict__"].contains(word)).collect::<Vec<_>>().join(" ")
    });
    (name.trim().to_string(), parameters.collect())
}
