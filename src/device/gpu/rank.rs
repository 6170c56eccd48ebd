// Tangled from book/src/several-devices.md: edit there, or here and run cargo tangle stitch.
//! A graphics processor as one rank of several, and its collective operations.

// Imports of a rank
use super::{Buffer, BufferView, Gpu, Precision};
use crate::device::backend::{Collective, DistributedMatrix};
use crate::device::collective::BlockCyclic;
use crate::error::Error;
use crate::numerics::real::Real;
use std::sync::Arc;

// Device as a rank
/// A graphics processor that has joined others as one of several ranks. All ranks make the same calls in the same order.
#[derive(Clone)]
pub(crate) struct Rank {
    gpu: Gpu,
    group: Arc<dyn Collective>,
    place: [usize; 2],
}

// Join other devices as a rank
impl Gpu {
    /// Identifier of a new group of ranks, for [`Gpu::join`]; one rank makes it and sends it to the others.
    ///
    /// # Errors
    /// `Device` with the name of a library for several devices that is missing.
    pub(crate) fn identifier(&self) -> Result<Vec<u8>, Error> {
        self.backend().identifier()
    }

    /// Joins other devices as a rank, and waits for all of them; `place` is the rank and the number of ranks.
    ///
    /// # Errors
    /// As [`Gpu::identifier`], and `Cuda` where a call of a library fails.
    pub(crate) fn join(&self, place: [usize; 2], identifier: &[u8]) -> Result<Rank, Error> {
        let (_turn, backend, stream) = self.queue.enter();
        let group = backend.join(stream, place, identifier)?.into();
        Ok(Rank { gpu: self.clone(), group, place })
    }
}

// Rank with given operations
#[cfg(test)]
impl Rank {
    /// A rank whose collective operations a test gives.
    pub(crate) fn with_collective(gpu: Gpu, group: Arc<dyn Collective>, place: [usize; 2]) -> Self {
        Self { gpu, group, place }
    }
}

// Collective operations of a rank
impl Rank {
    /// The device.
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Its rank, and the number of ranks.
    pub(crate) fn place(&self) -> [usize; 2] {
        self.place
    }

    /// Aborts the collective operation in progress, from any thread; no further one is possible.
    pub(crate) fn abort(&self) {
        self.group.abort();
    }

    // Describe a matrix in block-cyclic layout
    /// A matrix in block-cyclic layout, of which the buffer has this rank's columns.
    fn distributed<T: Real>(
        &self,
        matrix: &Buffer<T>,
        deal: &BlockCyclic,
    ) -> Result<DistributedMatrix, Error> {
        self.gpu.own("buffer", &matrix.memory.device)?;
        assert_eq!(*deal, deal.of(self.place[0]), "a deal is that of the rank");
        let numbers = deal.columns().saturating_mul(deal.count());
        assert_eq!(matrix.len, numbers, "a matrix fits its deal");
        Ok(DistributedMatrix {
            double: T::PRECISION == Precision::F64,
            order: deal.columns(),
            block: deal.block(),
            count: deal.count(),
            matrix: matrix.address,
        })
    }

    // Read what a call reports
    /// The report of a call: 0, or a number from 1.
    fn reported(&self, call: impl FnOnce(u64, u64) -> Result<(), Error>) -> Result<i32, Error> {
        let report = self.gpu.zeros::<i32>(1)?;
        let (_turn, _, stream) = self.gpu.queue.enter();
        let done = call(stream, report.address).map_err(|error| self.named(error));
        // A library may return an error together with a report.
        match (report.read(), done) {
            (Ok(said), _) if said[0] > 0 => Ok(said[0]),
            (said, done) => done.and(said).map(|said| said[0]),
        }
    }

    /// The error of a collective operation, with the name of this device.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Cuda { call, reason, .. } => {
                Error::Cuda { call, device: self.gpu.name().into(), reason }
            }
            other => other,
        }
    }

    // Factorise by all ranks
    /// Replaces a symmetric positive definite matrix, of which it reads the upper triangle by rows, by its Cholesky factor;
    /// returns the first pivot that is not positive.
    ///
    /// # Errors
    /// `Cuda` where a library fails, as for all collective operations.
    pub(crate) fn cholesky<T: Real>(
        &self,
        matrix: &Buffer<T>,
        deal: &BlockCyclic,
    ) -> Result<Option<usize>, Error> {
        let of = self.distributed(matrix, deal)?;
        let report = self.reported(|stream, report| self.group.cholesky(stream, &of, report))?;
        Ok(usize::try_from(report).ok().and_then(|number| number.checked_sub(1)))
    }

    // Solve by all ranks
    /// Replaces each row b, of which a rank has the columns of its layout, by A⁻¹ b, from the factor of A.
    pub(crate) fn solve<T: Real>(
        &self,
        factor: &Buffer<T>,
        deal: &BlockCyclic,
        rows: &Buffer<T>,
    ) -> Result<(), Error> {
        let of = self.distributed(factor, deal)?;
        let count = rows.len / of.count;
        assert_eq!(rows.len, count * of.count, "rows fit their deal");
        let call =
            |stream, report| self.group.solve(stream, &of, [rows.address, count as u64], report);
        self.check_report("the solution of linear equations", self.reported(call)?)
    }

    // Refuse a report that is not zero
    fn check_report(&self, what: &str, report: i32) -> Result<(), Error> {
        if report == 0 {
            return Ok(());
        }
        let reason = format!("{} reports {report}", self.gpu.name());
        Err(Error::Failed { what: what.into(), reason })
    }

    // Eigenvectors of a distributed matrix
    /// Eigenvalues of a symmetric matrix, ascending, and its eigenvectors, one a row, of which each rank has its columns. The matrix
    /// is overwritten.
    pub(crate) fn eigenvectors<T: Real>(
        &self,
        matrix: &Buffer<T>,
        deal: &BlockCyclic,
    ) -> Result<(Vec<T>, Buffer<T>), Error> {
        let of = self.distributed(matrix, deal)?;
        let (values, vectors) = (self.gpu.zeros::<T>(of.order)?, self.gpu.zeros::<T>(matrix.len)?);
        let found = [values.address, vectors.address];
        let call = |stream, report| self.group.eigenvectors(stream, &of, found, report);
        let report = self.reported(call)?;
        self.check_report(&format!("the decomposition of {0} × {0} numbers", of.order), report)?;
        Ok((values.read()?, vectors))
    }

    // Sum and broadcast over ranks
    /// Sums the numbers of all ranks; each rank gets the sum.
    pub(crate) fn sum<T: Real>(&self, values: &Buffer<T>) -> Result<(), Error> {
        self.gpu.own("buffer", &values.memory.device)?;
        let (_turn, _, stream) = self.gpu.queue.enter();
        let (double, numbers) =
            (T::PRECISION == Precision::F64, [values.address, values.len as u64]);
        self.group.sum(stream, double, numbers).map_err(|error| self.named(error))
    }

    /// Sends numbers of one rank to all others.
    pub(crate) fn broadcast<T: Real>(
        &self,
        values: BufferView<T>,
        from: usize,
    ) -> Result<(), Error> {
        self.gpu.own("buffer", &values.buffer.memory.device)?;
        let (_turn, _, stream) = self.gpu.queue.enter();
        let bytes = [values.address(), values.bytes() as u64];
        self.group.broadcast(stream, bytes, from).map_err(|error| self.named(error))
    }
}
