use crate::WorldOptions;
use turnbuckle_core::Protocol;

/// Plants the bugs of these names, separated by commas, into every node or into the protocol. `nothing` is no bug. Returns false if there
/// is no bug of a name. Some bugs are hidden by a second rule that compensates for them, and show only together.
pub fn plant<P: Protocol>(world: &mut WorldOptions, protocol: &mut P::Config, names: &str) -> bool {
    names
        .split(',')
        .all(|name| match (name, world.planted.named(name)) {
            ("nothing", _) => true,
            ("follows_clock_jumps", _) => {
                world.steady_clocks = false;
                true
            }
            ("opens_with_a_new_clock", _) => {
                world.keeps_clocks = false;
                true
            }
            (_, Some(bug)) => {
                *bug = true;
                true
            }
            (_, None) => P::plant(protocol, name),
        })
}
