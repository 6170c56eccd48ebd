// Tangled from book/src/python-device-arrays.md: edit there, or here and run cargo tangle stitch.
//! Arrays in the memory of a GPU, exchanged through DLPack.

// Imports of arrays on a GPU
use super::errors::{raised, refused};
use super::plans::engine;
use crate::device::Gpu;
use crate::device::gpu::Buffer;
use crate::error::{Error, Invalid};
use crate::numerics::real::Real;
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, ImportRequest, ImportedDlpack, export_dlpack};
use dlpark::{DlpackElement, DlpackFlags, Managed, ManagedTensorBase};
use ndarray::ArrayViewD;
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArrayDyn};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

// Numbers in GPU memory
/// Numbers on a device, in either precision.
#[derive(Clone)]
enum Numbers {
    F64(Arc<Buffer<f64>>),
    F32(Arc<Buffer<f32>>),
}

/// An array in the memory of a GPU, in row-major order. CuPy, PyTorch and JAX read it by `from_dlpack`, without a copy.
#[pyclass(frozen, module = "lenslet._lenslet")]
pub(super) struct DeviceArray {
    numbers: Numbers,
    shape: Vec<usize>,
    gpu: Gpu,
    ordinal: i32,
}

// GPU of a name and its number
/// GPU with this name, and its number.
fn gpu_of(device: &str, precision: &str) -> Result<(Gpu, i32), Error> {
    let engine = engine(device, precision)?;
    let expected = "a GPU: cuda or cuda:K";
    let gpu = engine.devices().first().ok_or_else(|| Invalid::new("device", device, expected))?;
    let number = gpu.name().strip_prefix("cuda:").map(|rest| {
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    });
    Ok((gpu.clone(), number.unwrap_or(0)))
}

// Methods of a GPU array
#[pymethods]
impl DeviceArray {
    // Copy an array to a GPU
    /// Copy of a NumPy array on a device.
    #[staticmethod]
    fn from_numpy(
        py: Python<'_>,
        values: PyReadonlyArrayDyn<'_, f64>,
        device: &str,
        precision: &str,
    ) -> PyResult<Self> {
        let view = values.as_array();
        let made = py.detach(|| Self::upload(&view, device, precision));
        made.map_err(raised)
    }

    // Shape type and address of an array
    /// Lengths of the dimensions.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    /// `float64` or `float32`.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.numbers {
            Numbers::F64(_) => "float64",
            Numbers::F32(_) => "float32",
        }
    }

    /// Name of the device.
    #[getter]
    fn device(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }

    /// Address of the first number on the device.
    #[getter]
    fn address(&self) -> u64 {
        self.pointer()
    }

    // Copy an array to the host
    /// Copy of the array on the host, in double precision.
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = py.detach(|| match &self.numbers {
            Numbers::F64(numbers) => numbers.read(),
            Numbers::F32(numbers) => {
                numbers.read().map(|values| values.into_iter().map(f64::from).collect())
            }
        });
        let flat = values.map_err(raised)?.into_pyarray(py);
        Ok(flat.reshape(self.shape.clone())?.into_any())
    }

    // Multiply by imported vectors
    /// Products of this matrix, (rows, columns), with vectors in the rows of an array of any library on the same device, (k, columns), which is not
    /// copied; shape (k, rows).
    fn multiply(&self, py: Python<'_>, vectors: &Bound<'_, PyAny>) -> PyResult<Self> {
        let &[rows, columns] = &self.shape[..] else {
            return Err(refused(Invalid::new("shape", format!("{:?}", self.shape), "a matrix")));
        };
        let imported = self.import(vectors)?;
        let (count, address) = self.vectors(&imported, columns)?;
        let product = py.detach(|| match &self.numbers {
            Numbers::F64(matrix) => {
                self.product(matrix, (address, count), [rows, columns]).map(Numbers::F64)
            }
            Numbers::F32(matrix) => {
                self.product(matrix, (address, count), [rows, columns]).map(Numbers::F32)
            }
        });
        // The vectors are released only now, because the kernels have read them.
        drop(imported);
        let (gpu, ordinal) = (self.gpu.clone(), self.ordinal);
        Ok(Self { numbers: product.map_err(raised)?, shape: vec![count, rows], gpu, ordinal })
    }

    // Methods of the DLPack protocol
    /// Type and number of the device, by DLPack's numbering.
    fn __dlpack_device__(&self) -> (u32, i32) {
        DLDevice::cuda(self.ordinal).into()
    }

    /// DLPack capsule of the array, without a copy.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let request = ExportRequest::parse(stream.as_ref(), max_version, dl_device, copy)?;
        export_dlpack(self, py, request)
    }
}

// Steps of a GPU array
impl DeviceArray {
    // Upload numbers in a precision
    fn upload(values: &ArrayViewD<'_, f64>, device: &str, precision: &str) -> Result<Self, Error> {
        let (gpu, ordinal) = gpu_of(device, precision)?;
        let numbers = match precision {
            "f32" => Numbers::F32(Arc::new(rounded(values, &gpu)?)),
            _ => Numbers::F64(Arc::new(rounded(values, &gpu)?)),
        };
        Ok(Self { numbers, shape: values.shape().to_vec(), gpu, ordinal })
    }

    fn pointer(&self) -> u64 {
        match &self.numbers {
            Numbers::F64(numbers) => numbers.address(),
            Numbers::F32(numbers) => numbers.address(),
        }
    }

    // Import an array of this GPU
    /// Tensor of another library's array, which must be on the same device.
    fn import(&self, array: &Bound<'_, PyAny>) -> PyResult<ImportedDlpack> {
        let request = ImportRequest::new(array.as_borrowed())?;
        let found = request.device()?;
        if found != DLDevice::cuda(self.ordinal) {
            let kind = if found.device_type == DLDeviceType::CPU { "cpu" } else { "device" };
            let expected = format!("an array on {}", self.device());
            let value = format!("{kind}:{}", found.device_id);
            return Err(refused(Invalid::new("device of the array", value, expected)));
        }
        // The producer makes this stream wait for the kernels that fill its array.
        let keywords = PyDict::new(array.py());
        keywords.set_item("stream", self.gpu.stream_handle())?;
        let capsule = array.call_method("__dlpack__", (), Some(&keywords))?;
        ImportRequest::new(capsule.as_borrowed())?.import(None, None)
    }

    // Check the imported vectors
    /// Number and address of the vectors of an imported array.
    fn vectors(&self, imported: &ImportedDlpack, columns: usize) -> PyResult<(usize, u64)> {
        let refuse = |reason: String| PyBufferError::new_err(reason);
        let tensor = imported.validate().map_err(|error| refuse(error.to_string()))?;
        let (is_same, name) = match self.numbers {
            Numbers::F64(_) => (tensor.dtype().is::<f64>(), "float64"),
            Numbers::F32(_) => (tensor.dtype().is::<f32>(), "float32"),
        };
        if !is_same {
            let found = match tensor.dtype() {
                kind if kind.is::<f64>() => "float64".into(),
                kind if kind.is::<f32>() => "float32".into(),
                kind => format!("{kind:?}"),
            };
            return Err(refused(Invalid::new("dtype of the array", found, name)));
        }
        let shape = tensor.shape().to_vec();
        let last = shape.last().copied().unwrap_or(0);
        let compact = tensor.is_compact().map_err(|error| refuse(error.to_string()))?;
        if !compact || last != columns as i64 || !(1..=2).contains(&shape.len()) {
            let expected = format!("(frames, {columns}) in C order");
            return Err(refused(Invalid::new(
                "shape of the array",
                format!("{shape:?}"),
                expected,
            )));
        }
        let address = tensor.data_ptr() as usize as u64 + tensor.byte_offset();
        Ok((tensor.num_elements() / columns.max(1), address))
    }

    // Multiply on the GPU
    /// Products of a matrix with vectors at an address of the same device; waits until they are complete.
    fn product<T: Real>(
        &self,
        matrix: &Buffer<T>,
        (address, count): (u64, usize),
        [rows, columns]: [usize; 2],
    ) -> Result<Arc<Buffer<T>>, Error> {
        let vectors = self.gpu.foreign::<T>(address, count * columns)?;
        let product = self.gpu.zeros::<T>(count * rows)?;
        let factors = [(vectors.view(..), false), (matrix.view(..), true)];
        let sizes = [count, columns, rows];
        self.gpu.multiply_matrices(factors, sizes, &product, [T::one(), T::zero()])?;
        self.gpu.synchronise()?;
        Ok(Arc::new(product))
    }

    // Tensor that shares the numbers
    /// DLPack tensor of this array, which keeps the memory alive.
    fn tensor<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let dtype = match self.numbers {
            Numbers::F64(_) => f64::DTYPE,
            Numbers::F32(_) => f32::DTYPE,
        };
        exported(self.numbers.clone(), self.pointer(), &self.shape, (dtype, self.ordinal))
    }
}

// Round numbers and upload them
/// Buffer on a device with these numbers, rounded to the precision `T`.
fn rounded<T: Real>(values: &ArrayViewD<'_, f64>, gpu: &Gpu) -> Result<Buffer<T>, Error> {
    gpu.refuse_beyond_memory((values.len() * size_of::<T>()) as u64, "an array")?;
    let numbers: Vec<T> = values.iter().map(|&value| T::of(value)).collect();
    gpu.upload(&numbers)
}

// Tensor of DLPack over a buffer
/// DLPack tensor of memory on a device, which `owner` keeps alive.
#[allow(unsafe_code)]
fn exported<M: ManagedTensorBase>(
    owner: Numbers,
    address: u64,
    shape: &[usize],
    (dtype, ordinal): (DLDataType, i32),
) -> PyResult<Managed<M>> {
    let failed = |error: &dyn std::fmt::Display| PyBufferError::new_err(error.to_string());
    let prepared = Dynamic::compact(shape).prepare_as::<M>().map_err(|error| failed(&error))?;
    let mut tensor = prepared.initialize(Box::new(owner));
    tensor
        .set_data(address as usize as *mut std::ffi::c_void)
        .set_device(DLDevice::cuda(ordinal))
        .set_dtype(dtype);
    // SAFETY: the address is that of a buffer on this device with as many numbers of this type as the shape has, by rows; the owner keeps it until the
    // tensor is dropped, and the strides are stored with the tensor.
    Ok(unsafe { tensor.finish() })
}

// Export by the rules of DLPack
impl DlpackExporter for DeviceArray {
    fn device(&self) -> DLDevice {
        DLDevice::cuda(self.ordinal)
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    /// Does nothing: all kernels that fill the array had finished when it was returned.
    fn prepare_export(&self, _py: Python<'_>, _request: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.tensor()
    }

    fn export_versioned(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.tensor()
    }
}
