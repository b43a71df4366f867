//! What dashboards ask a Redis server for, and what is switched off or empty here: its log of slow commands, its log of delays, its modules. The
//! replies are those of a Redis in which they are switched off, and `CONFIG GET` says so: `slowlog-log-slower-than` is -1, and
//! `latency-monitor-threshold` is 0.
use super::{PLAIN, Spec, check_subcommand, reply_help, unknown_subcommand};
use crate::refusal::Refusal;

pub(super) const SLOWLOG: Spec = Spec {
    name: "slowlog",
    arity: -2,
    flags: &["loading", "stale"],
    group: "server",
    syntax: "GET [count] | LEN | RESET",
    summary: "The log of slow commands, which is always empty: the node's metrics have the durations of operations.",
    run: |call| {
        let reply: fn(&mut crate::Writer<'_>) = match call.text(1).to_lowercase().as_str() {
            "get" => {
                check_subcommand(call, "slowlog|get", 2..=3)?;
                if call.len() == 3 && call.integer(2)? < -1 {
                    return Err(Refusal::err("count should be greater than or equal to -1"));
                }
                |writer| writer.array(0)
            }
            "len" => {
                check_subcommand(call, "slowlog|len", 2..=2)?;
                |writer| writer.integer(0)
            }
            "reset" => {
                check_subcommand(call, "slowlog|reset", 2..=2)?;
                |writer| writer.simple("OK")
            }
            "help" => {
                return reply_help(
                    call,
                    "SLOWLOG",
                    &[
                        "GET [<count>]",
                        "    Return nothing: slow commands are not logged.",
                        "LEN",
                        "    Return 0.",
                        "RESET",
                        "    Do nothing.",
                    ],
                );
            }
            _ => return Err(unknown_subcommand(call, "SLOWLOG")),
        };
        call.reply(reply)
    },
    ..PLAIN
};

pub(super) const LATENCY: Spec = Spec {
    name: "latency",
    syntax: "LATEST | HISTORY event | RESET [event ...]",
    summary: "The log of delays, which is always empty: the node's metrics have the durations of operations.",
    run: |call| {
        let reply: fn(&mut crate::Writer<'_>) = match call.text(1).to_lowercase().as_str() {
            "latest" => {
                check_subcommand(call, "latency|latest", 2..=2)?;
                |writer| writer.array(0)
            }
            "history" => {
                check_subcommand(call, "latency|history", 3..=3)?;
                |writer| writer.array(0)
            }
            "reset" => |writer| writer.integer(0),
            "doctor" | "graph" | "histogram" => {
                return Err(Refusal::unsupported(
                    "LATENCY: delays are not logged; the node's metrics have the durations of operations",
                ));
            }
            "help" => {
                return reply_help(
                    call,
                    "LATENCY",
                    &[
                        "LATEST",
                        "    Return nothing: delays are not logged.",
                        "HISTORY <event>",
                        "    Return nothing.",
                        "RESET [<event> ...]",
                        "    Return 0.",
                    ],
                );
            }
            _ => return Err(unknown_subcommand(call, "LATENCY")),
        };
        call.reply(reply)
    },
    ..SLOWLOG
};

pub(super) const MODULE: Spec = Spec {
    name: "module",
    syntax: "LIST",
    summary: "The modules, of which there are none.",
    run: |call| match call.text(1).to_lowercase().as_str() {
        "list" => {
            check_subcommand(call, "module|list", 2..=2)?;
            call.reply(|writer| writer.array(0))
        }
        "load" | "loadex" | "unload" => Err(Refusal::unsupported("MODULE: no modules can be loaded")),
        "help" => reply_help(
            call,
            "MODULE",
            &["LIST", "    Return nothing: there are no modules."],
        ),
        _ => Err(unknown_subcommand(call, "MODULE")),
    },
    ..SLOWLOG
};
