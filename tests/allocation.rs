//! Products with operators allocate nothing: the allocator of this program counts what watched threads ask it for.

use lenslet::linear::{Block, BlockToeplitz, Dense, Diagonal, Operator, Product, Sum};
use ndarray::Array2;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that watched threads have asked for and not given back, now and at most.
static USED: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// Whether this thread's allocations are counted: other tests run beside this one.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Whether these bytes are the workspace that a thread keeps from its first product of matrices on, the only ones that are aligned to pages:
/// addresses for twice the processor's last cache, of which it touches no more than the matrices have.
fn is_workspace(layout: Layout) -> bool {
    layout.align() >= 4096
}

/// The allocator of the system, and a count.
struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if WATCHED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            let bytes = if is_workspace(layout) { 0 } else { layout.size() as isize };
            MOST.fetch_max(USED.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if WATCHED.get() && !is_workspace(layout) {
            USED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        }
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result of `work` on two watched threads, and the most bytes that they had in use at a time.
pub fn peak<T: Send>(work: impl FnOnce() -> T + Send) -> (T, u64) {
    let watch = |_| WATCHED.set(true);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).start_handler(watch).build().unwrap();
    pool.install(|| {
        let before = USED.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let result = work();
        let most = MOST.load(Ordering::Relaxed) - before;
        (result, most.max(0).cast_unsigned() as u64)
    })
}

/// Slopes of two stars to wavefronts of one target, 20 × 20 lenslets and 41 × 41 points at twofold oversampling.
fn toeplitz() -> BlockToeplitz<f64> {
    let kernel = Array2::from_shape_fn((79, 79), |(j, i)| ((7 * j + 3 * i) % 11) as f64);
    let blocks = Array2::from_elem((1, 4), Block { kernel: 0, turned: false });
    let [valid, points] = [20, 41].map(|n| {
        Array2::from_shape_fn((n, n), |(j, i)| {
            let [y, x] = [j, i].map(|k| 2.0 * k as f64 / (n - 1) as f64 - 1.0);
            (0.1..1.0).contains(&(x * x + y * y))
        })
    });
    let valid = [valid.clone(), valid.clone(), valid.clone(), valid];
    BlockToeplitz::new(&[kernel.view()], &blocks, 2, &[points], &valid).unwrap()
}

/// The fewest allocations in any of five rounds of ten products each way, with three vectors at once.
///
/// The threads of a pool allocate once, when each takes over work for the first time; a product that allocates does so
/// in every round.
fn count(operator: &dyn Operator<f64>) -> usize {
    let mut x = vec![1.0; 3 * operator.columns()];
    let mut y = vec![0.0; 3 * operator.rows()];
    let mut scratch = vec![0.0; operator.scratch(3)];
    let mut round = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..10 {
            operator.apply(&x, &mut y, &mut scratch);
            operator.apply_transpose(&y, &mut x, &mut scratch);
            x.fill(1.0);
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    (0..5).map(|_| round()).min().unwrap()
}

#[test]
fn products_allocate_nothing() {
    let toeplitz: Arc<dyn Operator<f64>> = Arc::new(toeplitz());
    let noise: Arc<dyn Operator<f64>> = Arc::new(Diagonal::new(vec![2.0; toeplitz.columns()]));
    let shape = (toeplitz.rows(), toeplitz.columns());
    let dense: Arc<dyn Operator<f64>> = Arc::new(Dense::new(Array2::from_elem(shape, 0.5)));
    let product: Arc<dyn Operator<f64>> =
        Arc::new(Product::new(vec![toeplitz.clone(), noise.clone()]).unwrap());
    let sum = Sum::new(vec![product.clone(), dense.clone()]).unwrap();
    let watched = rayon::ThreadPoolBuilder::new().start_handler(|_| WATCHED.set(true));
    let pool = watched.num_threads(2).build().unwrap();
    // Within the pool: a thread from outside would have to hand its work over through a queue that allocates.
    let counts = pool.install(|| {
        [count(&*toeplitz), count(&*noise), count(&*dense), count(&*product), count(&sum)]
    });
    assert_eq!(counts, [0; 5]);
    let known = pool.install(|| count(&Clumsy(toeplitz)));
    assert!(known >= 20, "the count of an operator that does allocate: {known}");
}

/// An operator that allocates in each product, to see that the count counts.
struct Clumsy(Arc<dyn Operator<f64>>);

impl Operator<f64> for Clumsy {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn columns(&self) -> usize {
        self.0.columns()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        0
    }

    fn apply(&self, x: &[f64], y: &mut [f64], _scratch: &mut [f64]) {
        self.0.apply(x, y, &mut vec![0.0; self.0.scratch(3)]);
    }

    fn apply_transpose(&self, x: &[f64], y: &mut [f64], _scratch: &mut [f64]) {
        self.0.apply_transpose(x, y, &mut vec![0.0; self.0.scratch(3)]);
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}
