// Tangled from book/src/kernel-builds.md: edit there, or here and run cargo tangle stitch.
//! A device for tests that does nothing, and notes which programs it is asked for.

use crate::device::gpu::{Gpu, Machine, Shape, Source};
use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A source with the options that it is compiled with.
pub(crate) type Request = (Source, Vec<String>);

/// The programs that `work` asks a device for, each once.
///
/// # Errors
/// Those of `work`.
pub(crate) fn requests(
    work: impl FnOnce(&Gpu) -> Result<(), Error>,
) -> Result<Vec<Request>, Error> {
    let collector = Collector::default();
    let noted = Arc::clone(&collector.noted);
    work(&Gpu::new(collector))?;
    Ok(noted.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

// Machine that does nothing
#[derive(Default)]
struct Collector {
    noted: Arc<Mutex<Vec<Request>>>,
    handles: AtomicU64,
}

impl Collector {
    fn new_handle(&self) -> Result<u64, Error> {
        Ok(self.handles.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Machine for Collector {
    fn load(&self, source: &Source, options: &[String]) -> Result<u64, Error> {
        let request = (*source, options.to_vec());
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.contains(&request) {
            noted.push(request);
        }
        self.new_handle()
    }

    // Answers without any work
    fn name(&self) -> &str {
        "device that does nothing"
    }

    fn available_memory(&self) -> Result<u64, Error> {
        Ok(1 << 40)
    }

    fn shared_memory(&self) -> usize {
        227 << 10
    }

    fn allocate(&self, _bytes: usize) -> Result<u64, Error> {
        self.new_handle()
    }

    fn free(&self, _address: u64) {}

    // Answers to writes
    fn clear(&self, _address: u64, _bytes: usize) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, _address: u64, _bytes: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    // Answers to reads and launches
    fn read(&self, _address: u64, bytes: &mut [u8]) -> Result<(), Error> {
        bytes.fill(0);
        Ok(())
    }

    fn kernel(&self, _program: u64, _name: &str) -> Result<u64, Error> {
        self.new_handle()
    }

    fn launch(&self, _kernel: u64, _shape: Shape, _arguments: &mut [u64]) -> Result<(), Error> {
        Ok(())
    }

    fn synchronise(&self) -> Result<(), Error> {
        Ok(())
    }

    // Answers about recordings and plans
    fn begin_recording(&self) -> Result<(), Error> {
        Ok(())
    }

    fn end_recording(&self) -> Result<u64, Error> {
        self.new_handle()
    }

    fn replay(&self, _graph: u64) -> Result<(), Error> {
        Ok(())
    }

    fn forget_graph(&self, _graph: u64) {}

    fn milliseconds(&self, work: &mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error> {
        work().map(|()| 1.0)
    }
    // Answers about tuned operations
    fn plan_fft(&self, _length: usize, _batch: usize, _double: bool) -> Result<u64, Error> {
        self.new_handle()
    }

    fn transform(&self, _plan: u64, _address: u64) -> Result<(), Error> {
        Ok(())
    }

    fn forget_fft(&self, _plan: u64) {}

    fn multiply_matrix(
        &self,
        _double: bool,
        _matrix: u64,
        _shape: (usize, usize),
        _x: u64,
        _y: u64,
    ) -> Result<(), Error> {
        Ok(())
    }
}
