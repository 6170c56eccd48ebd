// Tangled from book/src/arrays.md: edit there, or here and run cargo tangle stitch.
//! Arrays whose type of element is known when the program runs.

// What typed arrays depend on
use ndarray::{ArrayD, ArrayViewD, CowArray, IxDyn};
use num_complex::{Complex32, Complex64};
use std::ops::Range;

// Arrays of six element types
/// An array of any number of dimensions, borrowed or owned, of one of six types of elements.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum TypedArray<'a> {
    /// Real numbers in double precision.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    F64(CowArray<'a, f64, IxDyn>),
    /// Real numbers in single precision.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    F32(CowArray<'a, f32, IxDyn>),
    /// Complex numbers in double precision.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    C64(CowArray<'a, Complex64, IxDyn>),
    /// Complex numbers in single precision.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    C32(CowArray<'a, Complex32, IxDyn>),
    /// Integers, counts among them.
    I64(CowArray<'a, i64, IxDyn>),
    /// Truth values.
    Bool(CowArray<'a, bool, IxDyn>),
}

// Type of an array's elements
/// Type of the elements of an array.
pub trait Element: Copy + 'static {
    /// Name of the type, as in `f64`.
    const NAME: &'static str;

    /// The array, with its type as a variant; counts become integers.
    fn typed(array: CowArray<'_, Self, IxDyn>) -> TypedArray<'_>;

    /// A view of the elements; `None` where they are of another type.
    fn view<'v>(array: &'v TypedArray<'_>) -> Option<ArrayViewD<'v, Self>>;

    /// A copy of the elements, also where every number of their type is one of this type; `None` for any other.
    fn copy(array: &TypedArray) -> Option<ArrayD<Self>>;
}

// What each element type does
macro_rules! element {
    ($type:ty, $variant:ident, $array:ident => $($from:pat => $wider:expr),*) => {
        impl Element for $type {
            const NAME: &'static str = stringify!($type);

            fn typed(array: CowArray<'_, Self, IxDyn>) -> TypedArray<'_> {
                TypedArray::$variant(array)
            }

            fn view<'v>(array: &'v TypedArray<'_>) -> Option<ArrayViewD<'v, Self>> {
                let TypedArray::$variant(array) = array else { return None };
                Some(array.view())
            }

            // Copy an array of another type
            fn copy(array: &TypedArray) -> Option<ArrayD<Self>> {
                match array {
                    TypedArray::$variant(array) => Some(array.to_owned()),
                    $($from => Some($wider),)*
                    _ => None,
                }
            }
        }
    };
}

// Conversions between types of elements
element!(f64, F64, array => TypedArray::F32(array) => array.mapv(f64::from));
element!(f32, F32, array =>);
element!(Complex64, C64, array => TypedArray::C32(array) => {
    array.mapv(|z| Complex64::new(z.re.into(), z.im.into()))
});
element!(Complex32, C32, array =>);
element!(i64, I64, array =>);
element!(bool, Bool, array =>);

// Counts as elements of arrays
macro_rules! count {
    ($type:ty) => {
        impl Element for $type {
            const NAME: &'static str = stringify!($type);

            fn typed(array: CowArray<'_, Self, IxDyn>) -> TypedArray<'_> {
                let integer = |count| i64::try_from(count).unwrap_or(i64::MAX);
                TypedArray::I64(array.mapv(integer).into())
            }

            fn view<'v>(_: &'v TypedArray<'_>) -> Option<ArrayViewD<'v, Self>> {
                None
            }

            fn copy(array: &TypedArray) -> Option<ArrayD<Self>> {
                let TypedArray::I64(array) = array else { return None };
                let counts = array.iter().map(|n| Self::try_from(*n).ok());
                ArrayD::from_shape_vec(array.raw_dim(), counts.collect::<Option<_>>()?).ok()
            }
        }
    };
}

count!(u32);
count!(usize);

// One expression for all element types
/// Evaluates an expression with the array inside, whichever its type.
macro_rules! each_type {
    ($typed:expr, $array:ident => $done:expr) => {
        match $typed {
            TypedArray::F64($array) => $done,
            TypedArray::F32($array) => $done,
            TypedArray::C64($array) => $done,
            TypedArray::C32($array) => $done,
            TypedArray::I64($array) => $done,
            TypedArray::Bool($array) => $done,
        }
    };
}

// Shape and bytes of typed arrays
impl TypedArray<'_> {
    /// Lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        each_type!(self, array => array.shape())
    }

    /// Name of the type of the elements, such as `f64`.
    pub fn element(&self) -> &'static str {
        match self {
            Self::F64(_) => f64::NAME,
            Self::F32(_) => f32::NAME,
            Self::C64(_) => Complex64::NAME,
            Self::C32(_) => Complex32::NAME,
            Self::I64(_) => i64::NAME,
            Self::Bool(_) => bool::NAME,
        }
    }

    /// Whether the elements are complex.
    pub fn is_complex(&self) -> bool {
        matches!(self, Self::C32(_) | Self::C64(_))
    }

    // Views and copies of typed arrays
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> TypedArray<'static> {
        each_type!(self, array => Element::typed(array.into_owned().into()))
    }

    /// A view that borrows from this array.
    pub fn view(&self) -> TypedArray<'_> {
        each_type!(self, array => Element::typed(array.view().into()))
    }

    /// A view with the dimensions in another order.
    pub(crate) fn permuted(&self, order: &[usize]) -> TypedArray<'_> {
        each_type!(self, array => Element::typed(array.view().permuted_axes(order).into()))
    }

    /// The array with its dimensions in another order, without a copy.
    pub(crate) fn into_permuted(self, order: &[usize]) -> Self {
        each_type!(self, array => Element::typed(array.permuted_axes(order)))
    }

    /// The elements at the indices `fixed` of the first dimensions, and in a range of the dimension after these.
    pub(crate) fn part(&self, fixed: &[usize], range: Range<usize>) -> TypedArray<'_> {
        each_type!(self, array => {
            let mut view = array.view();
            for &index in fixed {
                view = view.index_axis_move(ndarray::Axis(0), index);
            }
            view.slice_axis_inplace(ndarray::Axis(0), range.into());
            Element::typed(view.into())
        })
    }

    /// The first number that is NaN or infinite, with its index.
    pub(crate) fn first_not_finite(&self) -> Option<(Vec<usize>, f64)> {
        fn first<T: Copy>(
            array: &CowArray<T, IxDyn>,
            parts: impl Fn(T) -> [f64; 2],
        ) -> Option<(Vec<usize>, f64)> {
            let mut bad = array.indexed_iter().filter_map(|(index, x)| {
                let bad = parts(*x).into_iter().find(|part| !part.is_finite())?;
                Some((ndarray::Dimension::slice(&index).to_vec(), bad))
            });
            bad.next()
        }
        match self {
            Self::F64(array) => first(array, |x| [x, 0.0]),
            Self::F32(array) => first(array, |x| [x.into(), 0.0]),
            Self::C64(array) => first(array, |z| [z.re, z.im]),
            Self::C32(array) => first(array, |z| [z.re.into(), z.im.into()]),
            Self::I64(_) | Self::Bool(_) => None,
        }
    }
}
