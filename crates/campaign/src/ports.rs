//! Ports that nobody uses.
use std::{io, net::TcpListener};
use turnbuckle_server::config::DemoPorts;

/// Ports for this number of nodes. They were free a moment ago, and all of them were held at once, so that none comes twice.
///
/// # Errors
/// If the machine has no more.
pub fn free_ports(nodes: usize) -> io::Result<Vec<DemoPorts>> {
    let held = (0..3 * nodes)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<io::Result<Vec<_>>>()?;
    let ports = held
        .iter()
        .map(|socket| Ok(socket.local_addr()?.port()))
        .collect::<io::Result<Vec<u16>>>()?;
    let of_node = |of: &[u16]| DemoPorts {
        resp: of[0],
        peer: of[1],
        admin: of[2],
    };
    Ok(ports.chunks(3).map(of_node).collect())
}
