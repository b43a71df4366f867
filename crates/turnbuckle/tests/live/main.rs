//! The built program, as processes with real sockets: what clients, operators and attackers see of it.
mod acknowledged_writes_survive;
mod admin;
mod bad_input;
mod book;
mod causal;
mod cluster;
mod crowd;
mod damaged_disk;
mod deletes;
mod demo;
mod full_disk;
mod jumped_clock;
mod keyspaces;
mod members;
mod redis_crate;
mod refuses_to_start;
mod transactions;
