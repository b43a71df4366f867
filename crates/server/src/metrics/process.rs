//! What the operating system reports about this process. On Linux it is read from `/proc`; on other systems these series are absent.
use super::{Exposition, Kind};
use std::fs;

pub(super) fn render(text: &mut Exposition, start_time_seconds: f64) {
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            text.family(name, Kind::Gauge, help).sample(&[], value);
        }
    };
    gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970-01-01 UTC.",
        Some(start_time_seconds),
    );
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field| number_after(&status, field).map(|kib| kib * 1024.0);
    gauge(
        "process_resident_memory_bytes",
        "Memory of the process that is in RAM.",
        kib("VmRSS:"),
    );
    gauge(
        "process_virtual_memory_bytes",
        "Address space of the process.",
        kib("VmSize:"),
    );
    gauge(
        "process_threads",
        "Threads of the process.",
        number_after(&status, "Threads:"),
    );
    let open = fs::read_dir("/proc/self/fd")
        .ok()
        .map(|entries| entries.count() as f64);
    gauge("process_open_fds", "Open files and sockets.", open);
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let max = number_after(&limits, "Max open files");
    gauge("process_max_fds", "How many files and sockets may be open.", max);
}

/// The first number after a field's name at the start of a line.
fn number_after(text: &str, field: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_field() {
        let text =
            "Name:\tx\nVmRSS:\t    5120 kB\nMax open files            1024                 4096   files\n";
        assert_eq!(number_after(text, "VmRSS:"), Some(5120.0));
        assert_eq!(number_after(text, "Max open files"), Some(1024.0));
        assert_eq!(number_after(text, "VmSize:"), None);
        assert_eq!(number_after("Max open files unlimited", "Max open files"), None);
    }
}
