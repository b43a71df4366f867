use super::{
    PLAIN, Spec,
    hello::{REDIS_VERSION, redis_mode},
};
use crate::{InfoSection, call::Call, refusal::Refusal};

pub(super) const INFO: Spec = Spec {
    name: "info",
    flags: &["loading", "stale"],
    group: "server",
    syntax: "[section ...]",
    summary: "Numbers about the server.",
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Result<(), Refusal> {
    let wanted: Vec<String> = (1..call.len())
        .map(|place| call.text(place).to_lowercase())
        .collect();
    let is_wanted = |title: &str| {
        // As in Redis, this long section is shown only to those who ask for it.
        let is_default = title != "Commandstats";
        (wanted.is_empty() && is_default)
            || wanted.iter().any(|word| match word.as_str() {
                "all" | "everything" => true,
                "default" => is_default,
                word => word == title.to_lowercase(),
            })
    };
    let mut text = String::new();
    for section in sections(call).iter().filter(|section| is_wanted(&section.title)) {
        if !text.is_empty() {
            text += "\r\n";
        }
        text += &format!("# {}\r\n", section.title);
        for (name, value) in &section.lines {
            text += &format!("{name}:{value}\r\n");
        }
    }
    call.reply(|writer| writer.verbatim(&text))
}

/// The sections that client libraries look for, and then those of the backend.
fn sections(call: &Call<'_>) -> Vec<InfoSection> {
    let section = |title: &str, lines: &[(&str, &str)]| InfoSection {
        title: title.into(),
        lines: lines
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
    };
    let enabled = if call.backend.cluster_mode() { "1" } else { "0" };
    let mut sections = vec![
        section(
            "Server",
            &[("redis_version", REDIS_VERSION), ("redis_mode", redis_mode(call))],
        ),
        section("Persistence", &[("loading", "0")]),
        section("Replication", &[("role", "master"), ("connected_slaves", "0")]),
        section("Cluster", &[("cluster_enabled", enabled)]),
    ];
    for more in call.backend.info() {
        match sections.iter_mut().find(|section| section.title == more.title) {
            Some(section) => section.lines.extend(more.lines),
            None => sections.push(more),
        }
    }
    sections
}
