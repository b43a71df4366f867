//! x
use turnbuckle_causal::eventual::{Eventual, EventualConfig, EventualSession};
use turnbuckle_causal::{
    CausalSpartanXConfig, CausalSpartanXSession, CopsConfig, CopsSession, GentleRainConfig, GentleRainSession,
};
use turnbuckle_core::{Protocol, Session};
use turnbuckle_sim::{Exhaust, plant};

fn explore<S: Session>(small: &Exhaust, config: &<S::Protocol as Protocol>::Config) {
    let t = std::time::Instant::now();
    let e = small.explore::<S>(config);
    println!(
        "depth {}: {} executions, {} states, {} pruned, {} outcomes, {} left, {:?}",
        small.depth,
        e.executions,
        e.states,
        e.pruned,
        e.outcomes.len(),
        e.left,
        t.elapsed()
    );
    for (rule, f) in e.found {
        println!("  {rule} {f:?}");
        let r = small.replay::<S>(config.clone(), &f.schedule).unwrap();
        for s in r.steps {
            println!("    {}/{} {}", s.choice, s.of, s.words);
        }
        for s in r.told {
            println!("    {}", s);
        }
    }
}

#[test]
fn bugs() {
    let step = Some(Exhaust::STEP);
    for bug in std::env::var("BUGS").unwrap_or("nothing".into()).split(' ') {
        let depth = std::env::var("DEPTH").map_or(3, |d| d.parse().unwrap());
        let mut small = Exhaust {
            depth,
            ..Exhaust::new(2)
        };
        if let Ok(c) = std::env::var("CRASHES") {
            small.crashes = c.parse().unwrap();
        }
        if let Ok(c) = std::env::var("CUTS") {
            small.cuts = c.parse().unwrap();
        }
        if let Ok(c) = std::env::var("PASSES") {
            small.passes = c.parse().unwrap();
        }
        if let Ok(c) = std::env::var("NODES") {
            small.world.nodes_per_site = c.parse().unwrap();
        }
        if let Ok(c) = std::env::var("CLIENTS") {
            small.clients = c.split(';').map(|c| c.parse().unwrap()).collect();
        }
        if let Ok(c) = std::env::var("DUR") {
            small.world.durability = c.parse().unwrap();
        }
        small.prunes = std::env::var("NOPRUNE").is_err();
        println!("BUG {bug}");
        match std::env::var("P").as_deref() {
            Ok("csx") => {
                let mut c = CausalSpartanXConfig::paced(step, step);
                plant::<<CausalSpartanXSession as Session>::Protocol>(&mut small.world, &mut c, bug);
                explore::<CausalSpartanXSession>(&small, &c)
            }
            Ok("cops") => {
                let mut c = CopsConfig::paced(step, step);
                plant::<<CopsSession as Session>::Protocol>(&mut small.world, &mut c, bug);
                explore::<CopsSession>(&small, &c)
            }
            Ok("gr") => {
                let mut c = GentleRainConfig::paced(step, step);
                plant::<<GentleRainSession as Session>::Protocol>(&mut small.world, &mut c, bug);
                explore::<GentleRainSession>(&small, &c)
            }
            _ => {
                let mut c = EventualConfig::paced(step, step);
                plant::<Eventual>(&mut small.world, &mut c, bug);
                explore::<EventualSession>(&small, &c)
            }
        }
    }
}
