//! The links to the other nodes: one connection for each pair, dialled by the node that comes first in the configuration.
//!
//! ```text
//!   node.fill() --> chunk --> DelayLine (the WAN's delay, jitter, cuts) --> socket ... socket --> node.handle_frame()
//! ```
//!
//! A link that breaks is made again, after a pause that doubles up to [`MAX_PAUSE`]. Inside a site, where clients wait for partitions of the other
//! nodes, the pause doubles up to [`MAX_PAUSE_IN_SITE`]. While the WAN matrix has a cut between two sites, in either direction, there is no link
//! between their nodes: a connection needs both directions.
//!
//! A node that connects is a stranger until it has proven that it has the cluster's secret: see [`strangers`].
//!
//! Backpressure: a chunk is taken from the node only if the delay line has room, and the delay line empties only as fast as the socket takes it. A
//! stream's window bounds what is under way beyond that. So nothing piles up for a slow peer.
mod handshake;
mod strangers;
use crate::config::NodeId;
use crate::{
    run::Host,
    tls::{self, Link},
    wan::{DelayLine, Full},
};
use bytes::{Buf, Bytes, BytesMut};
use handshake::HandshakeError;
pub(crate) use handshake::{Identity, Met};
use std::{cell::RefCell, io::ErrorKind, rc::Rc, sync::Arc, time::Duration};
pub(crate) use strangers::StrangerCounts;
use strangers::{Complaints, Place, Strangers};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout},
};
use turnbuckle_core::Micros;
use turnbuckle_node::MAX_FRAME_BYTES;

/// How long to wait before a link is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE_IN_SITE: Duration = Duration::from_millis(200);

/// How long a connection may take to be established.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// To another site, less than `GATHER_BYTES` is sent at most once in this time, unless an operation waits for it, or a mark is to be sent. A WAN takes far longer,
/// and each chunk costs both sides a wake-up.
const GATHER: Micros = Micros::from_millis(1);
const GATHER_BYTES: usize = 16 << 10;

/// The most bytes that are taken from the node at a time.
const CHUNK_BYTES: usize = 128 << 10;

/// How often a silent link says that it is alive, and after how much silence it counts as dead.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
const DEAD_AFTER: Duration = Duration::from_secs(10);

/// How long a peer may refuse this node because it has a link to one other process with this node's name. After that, this node stops. The time is
/// longer than `DEAD_AFTER`: within it the other process must have sent something to the peer, so it runs.
const TWICE_TIME: Duration = Duration::from_secs(15);

/// Runs the links of a node, on its first event loop, until the node stops.
pub(crate) fn start(host: &Arc<Host>, listener: TcpListener) {
    tokio::task::spawn_local(look_at_certificates(Arc::clone(host)));
    tokio::task::spawn_local(accept_all(Arc::clone(host), listener));
    for peer in host.peers().filter(|&peer| host.id < peer) {
        tokio::task::spawn_local(dial_for_ever(Arc::clone(host), peer));
    }
}

async fn look_at_certificates(host: Arc<Host>) {
    if let Some(tls) = &host.tls {
        loop {
            sleep(tls::LOOK_EVERY).await;
            let tls = Arc::clone(tls);
            // The disk may be slow.
            if tokio::task::spawn_blocking(move || tls.look()).await.is_err() {
                return;
            }
        }
    }
}

async fn accept_all(host: Arc<Host>, listener: TcpListener) {
    let strangers = Rc::new(RefCell::new(Strangers::default()));
    let complaints = Rc::new(RefCell::new(Complaints::default()));
    // What was last logged about a peer. A peer with another configuration connects again and again.
    let said = Rc::new(RefCell::new(String::new()));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let (place, evicted) = Strangers::admit(&strangers, address.ip());
                    host.strangers.admitted(evicted);
                    let (host, said, complaints) = (Arc::clone(&host), Rc::clone(&said), Rc::clone(&complaints));
                    tokio::task::spawn_local(async move {
                        let Err(error) = accept_one(&host, stream, place).await else {
                            return;
                        };
                        match error {
                            HandshakeError::Peer(_) | HandshakeError::Twice { .. } => {
                                let why = error.to_string();
                                if said.replace(why.clone()) != why {
                                    tracing::warn!(node = host.name, "the connection from {address} is refused: {why}");
                                }
                            }
                            stranger => complaints.borrow_mut().say(&host, address, &stranger),
                        }
                    });
                    // The connections that are here continue their handshakes before more are accepted.
                    tokio::task::yield_now().await;
                }
                Err(error) => {
                    tracing::warn!(node = host.name, "no connection could be accepted: {error}");
                    sleep(FIRST_PAUSE).await;
                }
            },
            () = sleep(strangers::SAY_EVERY) => {}
        }
        complaints.borrow_mut().sum_up(&host);
        host.guard.sum_up();
    }
}

async fn accept_one(host: &Arc<Host>, stream: TcpStream, place: Place) -> Result<(), HandshakeError> {
    stream.set_nodelay(true)?;
    let mut claimed = None;
    let another_run = |name: &str, run| {
        let peer = host.peer_named(name)?;
        host.another_run(peer, run, DEAD_AFTER)
    };
    let accepting = async {
        let mut link = match &host.tls {
            Some(tls) => tls.accept(stream).await?,
            None => Link::Plain(stream),
        };
        let certificate = link.certificate();
        let certified = |name: &str| certificate.check_name(name);
        let accepted = handshake::accept(
            &mut link,
            &host.identity,
            host.nonce(),
            certified,
            another_run,
            &mut claimed,
        );
        let met = accepted.await?;
        Ok::<_, HandshakeError>((link, met))
    };
    let accepted = tokio::select! {
        accepted = accepting => Some(accepted),
        () = place.evicted() => None,
    };
    drop(place);
    let Some(accepted) = accepted else {
        host.strangers.left();
        // The eviction was counted, and is not logged.
        return Ok(());
    };
    host.strangers.left();
    if accepted.is_err() {
        host.strangers.refused();
    }
    if let Err(error) = &accepted
        && let Some(peer) = claimed.and_then(|name| host.peer_named(&name))
        && peer < host.id
        && !host.node.is_link_up(peer)
    {
        let why = format!("its connection was refused: {error}");
        match error.is_refusal() {
            true => host.note_refusal(peer, &why),
            false => host.note_link(peer, &why),
        }
    }
    let (link, met) = accepted?;
    let Some(peer) = host.peer_named(&met.node).filter(|&peer| peer < host.id) else {
        let found = handshake::quoted(&met.node);
        return Err(HandshakeError::Peer(format!(
            "expected a node that dials this one, found {found}"
        )));
    };
    // Another run may have got a link while this one was told that it may have one.
    if host.is_cut(peer) || host.another_run(peer, met.run, DEAD_AFTER).is_some() {
        return Ok(());
    }
    serve(host, peer, link, met).await;
    Ok(())
}

async fn dial_for_ever(host: Arc<Host>, peer: NodeId) {
    let max_pause = match host.is_far(peer) {
        true => MAX_PAUSE,
        false => MAX_PAUSE_IN_SITE,
    };
    let mut pause = FIRST_PAUSE;
    let mut said = String::new();
    // Another run of this node that the peer has a link to, and since when the peer has refused this run because of it.
    let mut twice: Option<(u64, Instant)> = None;
    let mut watch = host.wan.watch();
    loop {
        if host.is_cut(peer) {
            host.note_link(peer, "the WAN matrix has a cut");
            twice = None;
            let _ = watch.changed().await;
            continue;
        }
        match dial(&host, peer).await {
            Ok((link, met)) => {
                (pause, said, twice) = (FIRST_PAUSE, String::new(), None);
                serve(&host, peer, link, met).await;
            }
            Err(error) => {
                let why = error.to_string();
                twice = match error {
                    HandshakeError::Twice { linked, .. } => twice
                        .filter(|&(other, _)| other == linked)
                        .or(Some((linked, Instant::now()))),
                    _ => None,
                };
                if twice.is_some_and(|(_, since)| since.elapsed() > TWICE_TIME) {
                    return host.fail(&format!("{} says: {why}", host.node_name(peer)));
                }
                match error.is_refusal() {
                    true => host.note_refusal(peer, &why),
                    false => host.note_link(peer, &why),
                }
                if why != said {
                    let (node, peer) = (&host.name, host.node_name(peer));
                    match error.is_refusal() {
                        true => tracing::warn!(node, peer, "no link: {why}"),
                        false => tracing::info!(node, peer, "no link yet: {why}"),
                    }
                    said = why;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(max_pause);
    }
}

async fn dial(host: &Host, peer: NodeId) -> Result<(Link, Met), HandshakeError> {
    let connecting = TcpStream::connect(host.peer_address(peer));
    let stream = timeout(CONNECT_TIME, connecting)
        .await
        .map_err(|_| HandshakeError::NotConnected(CONNECT_TIME))??;
    stream.set_nodelay(true)?;
    let mut link = match &host.tls {
        Some(tls) => tls.connect(stream, host.node_name(peer)).await?,
        None => Link::Plain(stream),
    };
    let dialled = handshake::dial(&mut link, &host.identity, host.node_name(peer), host.nonce());
    let met = dialled.await?;
    Ok((link, met))
}

/// Serves a link until it ends.
async fn serve(host: &Arc<Host>, peer: NodeId, link: Link, met: Met) {
    // A newer connection of a peer ends an older one: the peer has given up the older one.
    let life = host.begin_link(peer, &met).await;
    let agreement = met.agreement;
    let (reader, writer) = link.into_split();
    let differs = agreement.to_string();
    host.node.link_up(host.clock.now(), peer, agreement);
    host.ring_first_loop();
    match differs.is_empty() {
        true => tracing::info!(node = host.name, peer = host.node_name(peer), "link up"),
        false => tracing::warn!(
            node = host.name,
            peer = host.node_name(peer),
            "link up, and {differs}"
        ),
    }
    let why = tokio::select! {
        why = read(host, peer, reader) => why,
        why = write(host, peer, writer) => why,
        () = cut(host, peer) => "the WAN matrix has a cut".to_string(),
        () = host.link_replaced(peer, life) => "the peer connected again".to_string(),
    };
    host.node.link_down(host.clock.now(), peer);
    host.end_link(peer, &why);
    host.ring_first_loop();
    tracing::info!(node = host.name, peer = host.node_name(peer), "link down: {why}");
}

async fn cut(host: &Host, peer: NodeId) {
    let mut watch = host.wan.watch();
    while !host.is_cut(peer) {
        if watch.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Handles frames until something is wrong. Returns what is wrong.
async fn read(host: &Host, peer: NodeId, mut reader: impl AsyncRead + Unpin) -> String {
    let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
    loop {
        while !host.node.wants_frames() {
            sleep(OVERLOAD_LOOK).await;
        }
        buffer.reserve(CHUNK_BYTES);
        match timeout(DEAD_AFTER, reader.read_buf(&mut buffer)).await {
            Err(_) => return format!("nothing arrived for {} s", DEAD_AFTER.as_secs()),
            Ok(Err(error)) if error.kind() != ErrorKind::UnexpectedEof => return error.to_string(),
            // With TLS it may have said so or not.
            Ok(Err(_) | Ok(0)) => return "the peer closed the connection".to_string(),
            Ok(Ok(bytes)) => host.link_received(peer, bytes),
        }
        if let Err(why) = take_frames(host, peer, &mut buffer) {
            tracing::error!(
                node = host.name,
                peer = host.node_name(peer),
                "the peer sent a frame that cannot be used: {why}"
            );
            return why;
        }
        host.ring_first_loop();
    }
}

fn take_frames(host: &Host, peer: NodeId, buffer: &mut BytesMut) -> Result<(), String> {
    let now = host.clock.now();
    while let Some(header) = buffer.first_chunk::<4>() {
        let len = u32::from_be_bytes(*header) as usize;
        if len > MAX_FRAME_BYTES {
            return Err(format!(
                "expected a frame of at most {MAX_FRAME_BYTES} bytes, found one of {len}"
            ));
        }
        if buffer.len() < 4 + len {
            break;
        }
        buffer.advance(4);
        let frame = buffer.split_to(len).freeze();
        // An empty frame says only that the link is alive.
        if !frame.is_empty() {
            host.node
                .handle_frame(now, peer, frame)
                .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Sends what the node has for the peer until the connection breaks. Returns why it broke.
async fn write(host: &Host, peer: NodeId, mut writer: impl AsyncWrite + Unpin) -> String {
    let bell = host.wakes.of_link(peer);
    let at_once = host.wakes.of_link_at_once(peer);
    let mut line = DelayLine::new(host.config.limits.max_link_backlog_bytes as usize, host.draw());
    // A chunk that is being gathered, and one that did not fit into the delay line.
    let (mut chunk, mut waiting) = (BytesMut::new(), Bytes::new());
    let mut more = true;
    let is_far = host.is_far(peer);
    // Until then, little waits for more, unless it is urgent.
    let mut gathers_until = Micros(0);
    let mut is_urgent = false;
    loop {
        loop {
            if waiting.is_empty() {
                is_urgent |= at_once.take();
                if more {
                    more = host.node.fill(peer, &mut chunk, CHUNK_BYTES);
                }
                let now = host.clock.monotonic();
                let gathers = is_far && !is_urgent && chunk.len() < GATHER_BYTES && now < gathers_until;
                if chunk.is_empty() || gathers {
                    break;
                }
                gathers_until = now + GATHER;
                is_urgent = false;
                waiting = std::mem::take(&mut chunk).freeze();
            }
            let now = host.clock.now().monotonic;
            if let Err(Full(chunk)) = line.push(now, host.link_delay(peer), std::mem::take(&mut waiting)) {
                waiting = chunk;
                break;
            }
        }
        while let Some(chunk) = line.pop_due(host.clock.now().monotonic) {
            if let Err(error) = write_through(&mut writer, &chunk).await {
                return error.to_string();
            }
            host.link_sent(peer, chunk.len(), line.held_bytes());
        }
        let now = host.clock.now().monotonic;
        let is_gathering = waiting.is_empty() && !chunk.is_empty();
        let times = [line.next_release(), is_gathering.then_some(gathers_until)];
        let next = times.into_iter().flatten().min();
        let next = next.map(|time| Duration::from_micros(time.since(now).0));
        if next.is_none() && (more || !waiting.is_empty()) {
            continue;
        }
        tokio::select! {
            // While little is gathered, more of it is no reason to wake up.
            () = bell.rung(), if !is_gathering => more = true,
            () = at_once.rung(), if is_gathering => (more, is_urgent) = (true, true),
            () = sleep(next.unwrap_or(ALIVE_EVERY)) => {
                more |= is_gathering;
                if next.is_none()
                    && let Err(error) = write_through(&mut writer, &0_u32.to_be_bytes()).await
                {
                    return error.to_string();
                }
            }
        }
    }
}

/// Writes bytes. TLS may keep some of them until it is flushed.
async fn write_through(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// While the node is overloaded, how often a link checks whether it may be read from again.
const OVERLOAD_LOOK: Duration = Duration::from_millis(20);
