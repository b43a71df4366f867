//! How fast worlds run: events per second on one core, and whether memory use stays constant. `EVENTS=100000000` runs longer, `RUN=b` only
//! the first of the runs.
use mimalloc::MiMalloc;
use std::env;
use turnbuckle_causal::eventual::{EventualConfig, EventualSession};
use turnbuckle_core::Micros;
use turnbuckle_node::Durability;
use turnbuckle_sim::{Keep, Kind, Load, Scenario, Span, WorldOptions};
use turnbuckle_workload::Workload;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Three sites, two partitions, WAN delays, clients that read and write.
fn scenario(letter: &str, safety: Micros) -> Scenario {
    let mut world = WorldOptions::plain(["a", "b", "c"], Micros::from_millis(40));
    world.partitions = 2;
    world.durability = Durability::Interval(Micros::from_millis(10));
    // Disks are in memory here, so logs are kept short.
    (world.checkpoint_log_bytes, world.retained_log_bytes) = (2 << 20, 2 << 20);
    world.segment_bytes = 256 << 10;
    Scenario {
        name: format!("workload {letter}"),
        world,
        load: Load {
            at: Vec::new(),
            requests: None,
            after: Micros(0),
            clients_per_node: 8,
            think: Span::us(0, 10_000),
            kind: Kind::Workload {
                workload: Box::new(Workload::core(letter).expect("a core workload")),
                load: true,
            },
            read: None,
            read_mix: None,
            write: None,
            roam_every: None,
            amplification: 1,
            pipeline: 1,
            visits: 0,
            away: 0,
        },
        safety,
        faults: Vec::new(),
        parameters: turnbuckle_core::Settings::default(),
    }
}

/// Resident memory of this process, and its peak, in MiB.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// Processor time of this process, in seconds: other load on the machine has little influence on it.
fn processor_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_SECOND
}

fn main() {
    let wanted: u64 = env::var("EVENTS")
        .ok()
        .and_then(|events| events.parse().ok())
        .unwrap_or(5_000_000);
    let keep_nothing = Keep {
        judge: false,
        trace: false,
        messages: false,
    };
    let judged = Keep {
        judge: true,
        ..keep_nothing
    };
    println!(
        "| run | events | processor seconds | million events a second | operations | resident MiB | peak MiB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (letter, keep, name) in [
        ("b", keep_nothing, "workload b"),
        ("a", keep_nothing, "workload a"),
        ("a", judged, "workload a, judged"),
    ] {
        if env::var("RUN").is_ok_and(|run| format!("workload {run}") != name) {
            continue;
        }
        // A short run tells how many events there are in a second of the world's time.
        let short = Micros::from_millis(1_000);
        let begin = scenario(letter, Micros(1))
            .run::<EventualSession>(EventualConfig::default(), keep)
            .events;
        let one = scenario(letter, short)
            .run::<EventualSession>(EventualConfig::default(), keep)
            .events
            - begin;
        let scenario = scenario(letter, Micros(short.0 * wanted / one.max(1)));
        let started = processor_seconds();
        let outcome = scenario.run::<EventualSession>(EventualConfig::default(), keep);
        let seconds = processor_seconds() - started;
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        let (now, peak) = memory();
        println!(
            "| {name} | {} | {seconds:.1} | {:.2} | {} | {now} | {peak} |",
            outcome.events,
            outcome.events as f64 / seconds / 1e6,
            outcome.tally.answered(),
        );
    }
}
