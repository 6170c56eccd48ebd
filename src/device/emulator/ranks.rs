// Tangled from book/src/emulated-ranks.md: edit there, or here and run cargo tangle stitch.
//! Emulated devices of one process as ranks: each receives the parts of all ranks, and does the whole computation by itself.

// Imports of emulated ranks
use super::{State, failed, lock, no_eigenvectors};
use crate::device::backend::{Collective, DistributedMatrix, Operation, Symmetric, Triangular};
use crate::device::collective::BlockCyclic;
use crate::error::Error;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

// Table for exchanges of ranks
/// Exchange of bytes between the ranks of one identifier, in rounds.
pub(super) struct ByteExchange {
    round: Mutex<Round>,
    full: Condvar,
    ranks: usize,
}

#[derive(Default)]
struct Round {
    number: usize,
    laid: HashMap<usize, Vec<u8>>,
    last: Arc<Vec<Vec<u8>>>,
    is_aborted: bool,
}

/// All tables of this process by their identifiers.
static TABLES: Mutex<Option<HashMap<Vec<u8>, Arc<ByteExchange>>>> = Mutex::new(None);

/// An unused identifier.
pub(super) fn identifier() -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes().to_vec()
}

// Exchange bytes between ranks
impl ByteExchange {
    /// Contributes the bytes of a rank, and returns those of all ranks.
    fn exchange(&self, rank: usize, bytes: Vec<u8>) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let mut round = lock(&self.round);
        let now = round.number;
        round.laid.insert(rank, bytes);
        if round.laid.len() == self.ranks {
            let mut laid = std::mem::take(&mut round.laid);
            round.last = Arc::new((0..self.ranks).filter_map(|k| laid.remove(&k)).collect());
            round.number += 1;
            self.full.notify_all();
        }
        while round.number == now && !round.is_aborted {
            round = self.full.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        match round.is_aborted {
            true => Err(failed("exchange", "aborted")),
            false => Ok(Arc::clone(&round.last)),
        }
    }
}

// Rank of an emulated device
/// An emulated device as one rank of several.
pub(super) struct EmulatedRank {
    state: Arc<Mutex<State>>,
    table: Arc<ByteExchange>,
    place: [usize; 2],
}

// Join a table of ranks
impl EmulatedRank {
    /// Joins the table of an identifier, and waits for all ranks.
    pub(super) fn new(
        state: Arc<Mutex<State>>,
        place: [usize; 2],
        identifier: &[u8],
    ) -> Result<Self, Error> {
        // Find or make a table
        let mut tables = lock(&TABLES);
        let new = || {
            let (round, full) = Default::default();
            Arc::new(ByteExchange { round, full, ranks: place[1] })
        };
        let known = tables.get_or_insert_default().entry(identifier.to_vec());
        let table = Arc::clone(known.or_insert_with(new));
        drop(tables);
        table.exchange(place[0], Vec::new())?;
        Ok(Self { state, table, place })
    }

    // Exchange parts of rows
    /// Bytes of all ranks; each rank may contribute another number of them.
    fn all(&self, [address, bytes]: [u64; 2]) -> Result<Arc<Vec<Vec<u8>>>, Error> {
        let mine = lock(&self.state).values::<u8>("share", address, bytes as usize)?.to_vec();
        self.table.exchange(self.place[0], mine)
    }

    /// Overwrites this rank's part of some rows.
    fn put(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        lock(&self.state).values("put", address, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    // Gather whole rows from ranks
    /// All columns of some rows at a new address.
    fn gathered(&self, of: &DistributedMatrix, [address, rows]: [u64; 2]) -> Result<u64, Error> {
        let size = size(of.double);
        let parts = self.all([address, rows * (of.count * size) as u64])?;
        let mut state = lock(&self.state);
        let whole = state.allocate(rows as usize * of.order * size)?;
        let to = state.values::<u8>("gather", whole, rows as usize * of.order * size)?;
        for (rank, part) in parts.iter().enumerate() {
            let deal = self.layout(of).of(rank);
            let count = deal.count() * size;
            for (row, part) in part.chunks_exact(count).enumerate() {
                for (k, tile) in deal.tiles().enumerate() {
                    let (start, bytes) = ((row * of.order + tile.start) * size, tile.len() * size);
                    let from = k * deal.block() * size;
                    to[start..start + bytes].copy_from_slice(&part[from..from + bytes]);
                }
            }
        }
        Ok(whole)
    }

    // Distribute whole rows
    /// Copies this rank's columns of whole rows, and frees the rows.
    fn scattered(
        &self,
        of: &DistributedMatrix,
        whole: u64,
        [address, rows]: [u64; 2],
    ) -> Result<(), Error> {
        let (size, mut state) = (size(of.double), lock(&self.state));
        let from = state.values::<u8>("deal", whole, rows as usize * of.order * size)?;
        let to = state.values::<u8>("deal", address, rows as usize * of.count * size)?;
        let mut next = to.chunks_exact_mut(size);
        for row in from.chunks_exact(of.order * size) {
            for column in self.layout(of).tiles().flatten() {
                let number = &row[column * size..(column + 1) * size];
                next.next().into_iter().for_each(|to| to.copy_from_slice(number));
            }
        }
        state.memory.remove(&whole);
        Ok(())
    }

    // Layout on emulated ranks
    fn layout(&self, of: &DistributedMatrix) -> BlockCyclic {
        let deal = BlockCyclic::new(of.order, self.place);
        assert_eq!((deal.block(), deal.count()), (of.block, of.count), "one way to deal");
        deal
    }
}

// Bytes of a number
/// Bytes of a number.
fn size(double: bool) -> usize {
    if double { 8 } else { 4 }
}

// Collective operations of emulated ranks
impl Collective for EmulatedRank {
    fn cholesky(&self, _stream: u64, of: &DistributedMatrix, report: u64) -> Result<(), Error> {
        let rows = [of.matrix, of.order as u64];
        let matrix = self.gathered(of, rows)?;
        let DistributedMatrix { double, order, .. } = *of;
        let whole = Symmetric { double, order, matrix, report };
        lock(&self.state).operate(&Operation::Cholesky(whole))?;
        self.scattered(of, matrix, rows)
    }

    // Solve among emulated ranks
    fn solve(
        &self,
        _stream: u64,
        of: &DistributedMatrix,
        rows: [u64; 2],
        report: u64,
    ) -> Result<(), Error> {
        let factor = self.gathered(of, [of.matrix, of.order as u64])?;
        let whole = self.gathered(of, rows)?;
        let mut state = lock(&self.state);
        state.values::<i32>("solve", report, 1)?[0] = 0;
        for transposed in [false, true] {
            let DistributedMatrix { double, order, .. } = *of;
            let (count, rows) = (rows[1] as usize, whole);
            let work = Triangular { double, order, factor, count, rows, transposed };
            state.operate(&Operation::SolveTriangular(work))?;
        }
        state.memory.remove(&factor);
        drop(state);
        self.scattered(of, whole, rows)
    }

    fn eigenvectors(
        &self,
        _: u64,
        _: &DistributedMatrix,
        _: [u64; 2],
        _: u64,
    ) -> Result<(), Error> {
        Err(no_eigenvectors())
    }

    // Sum among emulated ranks
    fn sum(&self, _stream: u64, double: bool, [address, count]: [u64; 2]) -> Result<(), Error> {
        let parts = self.all([address, count * size(double) as u64])?;
        let sums = |k: usize| -> Vec<u8> {
            let at = k * size(double);
            let number = |part: &Vec<u8>| match double {
                true => bytemuck::pod_read_unaligned::<f64>(&part[at..at + 8]),
                false => bytemuck::pod_read_unaligned::<f32>(&part[at..at + 4]).into(),
            };
            let sum: f64 = parts.iter().map(number).sum();
            if double { sum.to_ne_bytes().to_vec() } else { (sum as f32).to_ne_bytes().to_vec() }
        };
        self.put(address, &(0..count as usize).flat_map(sums).collect::<Vec<u8>>())
    }

    fn broadcast(&self, _stream: u64, bytes: [u64; 2], from: usize) -> Result<(), Error> {
        let parts = self.all(bytes)?;
        self.put(bytes[0], &parts[from])
    }

    fn abort(&self) {
        lock(&self.table.round).is_aborted = true;
        self.table.full.notify_all();
    }
}
