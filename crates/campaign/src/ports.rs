//! Free ports.
//!
//! If the operating system chooses a port, the next outgoing connection may take it before its node has started. So ports are chosen from
//! below the range of outgoing connections, one after the other, and each process begins at another one.
use std::{
    io,
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};
use turnbuckle_server::config::DemoPorts;

/// Linux uses ports from 32,768 on for outgoing connections, other systems begin further up.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// The number of ports that this process has looked at.
static LOOKED_AT: AtomicU16 = AtomicU16::new(0);

/// Ports for this number of nodes. They were free a moment ago.
///
/// # Errors
/// If the machine has no more free ports.
pub fn free_ports(nodes: usize) -> io::Result<Vec<DemoPorts>> {
    let ports = (0..3 * nodes)
        .map(|_| free_port())
        .collect::<io::Result<Vec<u16>>>()?;
    let of_node = |of: &[u16]| DemoPorts {
        resp: of[0],
        peer: of[1],
        admin: of[2],
    };
    Ok(ports.chunks(3).map(of_node).collect())
}

fn free_port() -> io::Result<u16> {
    let begin = (std::process::id().wrapping_mul(61) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let looked_at = LOOKED_AT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + ((u32::from(begin) + u32::from(looked_at)) % u32::from(COUNT)) as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!(
        "none of the ports {FIRST} to {} is free on 127.0.0.1",
        FIRST + COUNT - 1
    )))
}
