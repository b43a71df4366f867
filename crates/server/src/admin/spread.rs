//! How a change of the WAN matrix gets to the nodes of other processes.
//!
//! ```text
//! POST /wan/cut  -->  a1: its own matrix  --PUT /wan/links-->  b1, c1, .. at once; a node that does not answer: again, each second
//!                     c1 starts           --GET /wan------->   a1, b1, ..
//! ```
//!
//! The message is the whole matrix with the time of each change, so it does not matter how often or in which order it is sent. Admin HTTP is not
//! subject to the matrix: a site that is cut off still hears that the cut has ended.
use super::{Admin, AdminClient, AdminClientError, AdminToken, WanLink, WanView};
use crate::tls::Tls;
use crate::wan::{LinkDelay, LinkState, WanMatrix};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::{JoinSet, spawn_blocking};
use turnbuckle_node::NodeId;

/// How long a node may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// How long until a node that did not answer is told again.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// The other nodes of the cluster.
#[derive(Debug, Default)]
pub struct Others(Vec<Arc<Other>>);

#[derive(Debug)]
struct Other {
    id: NodeId,
    name: String,
    /// The address of its admin HTTP.
    address: String,
    /// The token of the cluster's nodes.
    token: AdminToken,
    /// Certificates, if this node has any.
    tls: Option<Arc<Tls>>,
    /// It has to be told a change, and is told again until it answers.
    is_owed: AtomicBool,
}

impl Others {
    /// The nodes by id, name and address of their admin HTTP, and the token by which nodes of the cluster know each other. `tls`: the certificates of this node.
    pub fn new(
        token: &AdminToken,
        tls: Option<&Arc<Tls>>,
        nodes: impl IntoIterator<Item = (NodeId, String, String)>,
    ) -> Others {
        let others = nodes.into_iter().map(|(id, name, address)| {
            Arc::new(Other {
                id,
                name,
                address,
                token: token.clone(),
                tls: tls.cloned(),
                is_owed: AtomicBool::new(false),
            })
        });
        Others(others.collect())
    }

    /// The nodes of other processes.
    fn beyond(&self, wan: &WanMatrix) -> Vec<Arc<Other>> {
        let beyond = self.0.iter().filter(|other| !wan.serves(other.id));
        beyond.cloned().collect()
    }
}

impl Other {
    fn client(&self) -> AdminClient {
        let authority = self.tls.as_ref().and_then(|tls| tls.authority());
        AdminClient::new(self.address.clone(), ANSWER_TIME).with_authority(authority, Some(&self.name))
    }

    fn tell(&self, links: &Vec<WanLink>) -> Result<(), AdminClientError> {
        let client = self.client().with_token(Some(self.token.clone()));
        client.adopt(links).map(drop)
    }
}

/// Tells the nodes of all other processes what the matrix is now. Returns the matrix, and the nodes that were not reached.
///
/// If the client does not wait for the answer, the others are told all the same.
pub(super) async fn spread(admin: &Admin) -> WanView {
    let told = tokio::spawn(tell_all(admin.clone())).await;
    told.unwrap_or_else(|_| WanView::of(&admin.wan))
}

async fn tell_all(admin: Admin) -> WanView {
    let mut view = WanView::of(&admin.wan);
    let mut tells = JoinSet::new();
    for other in admin.others.beyond(&admin.wan) {
        let links = view.links.clone();
        tells.spawn_blocking(move || (other.tell(&links), other));
    }
    let mut not_reached = BTreeMap::new();
    while let Some(told) = tells.join_next().await {
        if let Ok((Err(error), other)) = told {
            not_reached.insert(other.name.clone(), error.to_string());
            if !other.is_owed.swap(true, Ordering::AcqRel) {
                tokio::spawn(tell_again(admin.wan.clone(), other));
            }
        }
    }
    view.not_reached = not_reached;
    view
}

/// Tells a node what the matrix is then, once in `TELL_AGAIN`, until it answers.
async fn tell_again(wan: WanMatrix, other: Arc<Other>) {
    loop {
        tokio::time::sleep(TELL_AGAIN).await;
        let links = WanView::of(&wan).links;
        let (asked, told_links) = (Arc::clone(&other), links.clone());
        let told = spawn_blocking(move || asked.tell(&told_links)).await;
        // A change that was made meanwhile, and did not reach the node either, relies on this task.
        if matches!(told, Ok(Ok(()))) {
            other.is_owed.store(false, Ordering::Release);
            if WanView::of(&wan).links == links || other.is_owed.swap(true, Ordering::AcqRel) {
                return;
            }
        }
    }
}

/// Asks the other nodes, one after the other, and takes over their changes. For a node that starts.
pub fn ask_others(others: &Others, wan: &WanMatrix) {
    for other in others.beyond(wan) {
        // A node that does not run has nothing to tell.
        if let Ok(view) = other.client().wan() {
            adopt(wan, &view.links);
        }
    }
}

/// Takes over every direction that was changed later than here. Unknown sites and invalid delays are skipped: the other node's configuration may
/// differ from this node's.
pub(super) fn adopt(wan: &WanMatrix, links: &[WanLink]) {
    for link in links {
        let sites = (wan.site_named(&link.from), wan.site_named(&link.to));
        if let (Some(from), Some(to)) = sites
            && let Ok(delay) = link.delay.parse::<LinkDelay>()
        {
            let state = LinkState { delay, cut: link.cut };
            wan.adopt(from, to, state, link.changed_us);
        }
    }
}
