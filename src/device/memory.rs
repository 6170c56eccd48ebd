// Tangled from book/src/device.md: edit there, or here and run cargo tangle stitch.
//! What the machine has, and refusals of what it has not.

use crate::error::Error;

// Measure the available memory
/// Memory that this process could still use, in bytes; `None` where the system does not tell.
pub fn available_memory() -> Option<u64> {
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_memory();
    let limit = system
        .cgroup_limits()
        .map_or(u64::MAX, |limits| limits.total_memory.saturating_sub(limits.rss));
    let limit = limit.min(free_address_space().unwrap_or(u64::MAX));
    Some(system.available_memory().min(limit)).filter(|&bytes| bytes > 0)
}
/// Bytes that any machine has.
const FEW: u64 = 128 << 20;

/// Refuses `what`, which needs so many bytes, where fewer are available now; a few are never refused.
///
/// # Errors
/// `Memory`. Where the system does not tell what is available, nothing is refused.
pub fn refuse_beyond_memory(needed: u64, what: impl Fn() -> String) -> Result<(), Error> {
    let available = if needed > FEW { available_memory() } else { None };
    available.map_or(Ok(()), |available| refuse(needed, available, what))
}

/// Refuses `what`, which needs so many bytes, where fewer are available.
pub(super) fn refuse(needed: u64, available: u64, what: impl Fn() -> String) -> Result<(), Error> {
    if needed <= available {
        return Ok(());
    }
    Err(Error::Memory { what: what(), needed, available })
}

// Free address space of the process
/// Address space that this process can still use, in bytes, where it is limited.
pub(super) fn free_address_space() -> Option<u64> {
    let number = |file: &str, key: &str| -> Option<u64> {
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(key))?.to_string();
        line.split_whitespace().next()?.parse().ok()
    };
    let limit = number("/proc/self/limits", "Max address space")?;
    let used = number("/proc/self/status", "VmSize:")?.saturating_mul(1024);
    Some(limit.saturating_sub(used))
}

// Name the processor
/// What the processor calls itself, such as `AMD EPYC`; `processor of unknown name` where it does not.
pub fn processor_name() -> String {
    let mut system = sysinfo::System::new().ok();
    let brand = system.as_mut().and_then(|system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        system.cpus().first().map(|cpu| cpu.brand().trim().to_string())
    });
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| "processor of unknown name".into())
}
