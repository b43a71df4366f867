//! What the operating system reports about this process. On Linux it is read from `/proc`; on other systems these series are absent.
use super::{Exposition, Kind};
use rustix::param::clock_ticks_per_second;
use std::fs;

/// This process now. What cannot be read is `None`.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Memory in RAM, in bytes.
    pub resident_bytes: Option<f64>,
    /// Address space, in bytes.
    pub virtual_bytes: Option<f64>,
    /// Processor time in user mode, and in the kernel, in seconds.
    pub user_seconds: Option<f64>,
    pub system_seconds: Option<f64>,
    pub threads: Option<f64>,
    /// Open files and sockets, and the limit.
    pub open_fds: Option<f64>,
    pub max_fds: Option<f64>,
}

impl Process {
    pub fn now() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |field| number_after(&status, field).map(|kib| kib * 1024.0);
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let seconds = |place| Some(ticks(&stat, place)? / clock_ticks_per_second() as f64);
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let open = fs::read_dir("/proc/self/fd").ok();
        Process {
            resident_bytes: kib("VmRSS:"),
            virtual_bytes: kib("VmSize:"),
            user_seconds: seconds(USER_TICKS),
            system_seconds: seconds(SYSTEM_TICKS),
            threads: number_after(&status, "Threads:"),
            open_fds: open.map(|entries| entries.count() as f64),
            max_fds: number_after(&limits, "Max open files"),
        }
    }
}

/// The places of `utime` and `stime` in `/proc/self/stat`, counted from the field after the program's name.
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;

/// A number of `/proc/self/stat`. The program's name is in parentheses, and may itself have spaces and parentheses.
fn ticks(stat: &str, place: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(place)?.parse().ok()
}

pub(super) fn render(text: &mut Exposition, start_time_seconds: f64) {
    let process = Process::now();
    let mut family = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            text.family(name, kind, help).sample(&[], value);
        }
    };
    let cpu = process.user_seconds.zip(process.system_seconds);
    family(
        "process_cpu_seconds_total",
        Kind::Counter,
        "Processor time of the process, in user mode and in the kernel.",
        cpu.map(|(user, system)| user + system),
    );
    let mut gauge = |name, help, value| family(name, Kind::Gauge, help, value);
    gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970-01-01 UTC.",
        Some(start_time_seconds),
    );
    gauge(
        "process_resident_memory_bytes",
        "Memory of the process that is in RAM.",
        process.resident_bytes,
    );
    gauge(
        "process_virtual_memory_bytes",
        "Address space of the process.",
        process.virtual_bytes,
    );
    gauge("process_threads", "Threads of the process.", process.threads);
    gauge("process_open_fds", "Open files and sockets.", process.open_fds);
    gauge(
        "process_max_fds",
        "How many files and sockets may be open.",
        process.max_fds,
    );
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
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 40 0";
        assert_eq!(
            (ticks(stat, USER_TICKS), ticks(stat, SYSTEM_TICKS)),
            (Some(250.0), Some(40.0))
        );
        assert_eq!(ticks("7 (x) S 1", USER_TICKS), None);
    }
}
