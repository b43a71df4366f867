//! `turnbuckle wan`: delays and cuts between the sites of a running cluster.
use crate::admin::{Access, client, failure};
use crate::failure::{Failure, environment, say};
use clap::{Args, Subcommand};
use turnbuckle_server::admin::{LinkName, SetDelay, WanView};

/// Shows or changes the delays and cuts between sites of a running cluster.
///
/// Any node can be asked: it tells all other nodes. Nodes that it does not reach are named in the output, and are told again every second. A node
/// that starts asks the other nodes.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  turnbuckle wan show\n  turnbuckle wan set a c 300ms~20ms\n  turnbuckle wan cut a b\n  \
                        turnbuckle wan heal"
)]
pub struct Wan {
    /// The admin address of a node.
    #[arg(
        long,
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:7100",
        env = "TURNBUCKLE_ADMIN",
        global = true
    )]
    admin: String,
    #[command(flatten)]
    access: Access,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows every direction between two sites.
    Show,
    /// Sets the one-way delay from one site to another, such as 40ms, or 40ms~4ms with jitter.
    Set {
        /// The site that messages come from.
        from: String,
        /// The site that messages go to.
        to: String,
        /// The delay, and after ~ the jitter: each from 0ms to 60s.
        delay: String,
        /// Set the opposite direction to the same delay, too.
        #[arg(long)]
        both: bool,
    },
    /// Cuts the link between two sites, in both directions.
    Cut {
        /// One of the sites.
        from: String,
        /// The other site.
        to: String,
    },
    /// Ends the cut between two sites, or all cuts.
    Heal {
        /// One of the sites.
        #[arg(requires = "to")]
        from: Option<String>,
        /// The other site.
        to: Option<String>,
    },
}

pub fn run(options: &Wan) -> Result<(), Failure> {
    let client = client(&options.admin, &options.access.open()?);
    let view = match &options.action {
        Action::Show => client.wan(),
        Action::Set {
            from,
            to,
            delay,
            both,
        } => client.set_delay(&SetDelay {
            from: from.clone(),
            to: to.clone(),
            delay: delay.clone(),
            both: *both,
        }),
        Action::Cut { from, to } => client.cut(&LinkName {
            from: from.clone(),
            to: to.clone(),
        }),
        Action::Heal { from, to } => {
            let link = from
                .clone()
                .zip(to.clone())
                .map(|(from, to)| LinkName { from, to });
            client.heal(link.as_ref())
        }
    };
    let view = view.map_err(failure)?;
    match options.json {
        true => say(&serde_json::to_string(&view).map_err(|error| environment(&error))?),
        false => say(&show_wan(&view)),
    }
}

/// One line for each pair of sites whose two directions are the same, else one line for each direction.
pub(crate) fn show_wan(view: &WanView) -> String {
    let mut lines = Vec::new();
    for link in &view.links {
        let back = view
            .links
            .iter()
            .find(|back| back.from == link.to && back.to == link.from);
        let is_alike = back.is_some_and(|back| back.delay == link.delay && back.cut == link.cut);
        if is_alike && link.from > link.to {
            continue;
        }
        let arrow = if is_alike { "<->" } else { " ->" };
        let cut = if link.cut { "  CUT" } else { "" };
        lines.push(format!("{} {arrow} {}  {}{cut}", link.from, link.to, link.delay));
    }
    for (node, why) in &view.not_reached {
        lines.push(format!(
            "{node} does not know of it yet, and is told again each second: {why}"
        ));
    }
    lines.join("\n")
}
