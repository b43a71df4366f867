//! One execution of a small world: the choices for its next step, its state by then, and its end.
use super::{Broken, Exhaust, program::Action};
use crate::{Loss, OperationId, Rule, World, world::Due};
use std::hash::{DefaultHasher, Hash, Hasher};
use turnbuckle_check::{HistoryBuilder, Report};
use turnbuckle_core::{Hlc, Micros, Protocol, Session, SiteId};
use turnbuckle_node::NodeId;

/// An execution that is still going on.
pub(super) struct Run<'a, S: Session> {
    small: &'a Exhaust,
    pub world: World<S>,
    clients: Vec<Client>,
    /// For each node, a checksum of everything that has happened to it, in order.
    nodes: Vec<u64>,
    /// A checksum of all answers, in order, each with the operations that had been asked for before it.
    answers: u64,
    /// A checksum of the operations that were asked for, independent of their order.
    asked: u64,
    crashes: usize,
    cuts: usize,
    cut: Vec<(SiteId, SiteId)>,
    passes: usize,
}

struct Client {
    number: usize,
    /// The index of its next action.
    place: usize,
    open: Option<OperationId>,
}

/// Something that may happen next.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    /// An event that is due in the world.
    Due(Due),
    /// A client asks for its next operation, or moves.
    Ask(usize),
    /// [`Exhaust::STEP`] passes.
    Pass,
    Restart(NodeId),
    Heal(SiteId, SiteId),
    Crash(NodeId, Loss),
    Cut(SiteId, SiteId),
}

/// The longest time that a world may take to come to rest.
const LIVENESS: Micros = Micros::from_millis(60_000);

/// The longest step of time meanwhile.
const MAX_STEP: Micros = Micros::from_millis(640);

impl<'a, S: Session> Run<'a, S> {
    /// A world whose nodes are connected, and in which nothing is due.
    pub fn new(small: &'a Exhaust, protocol: <S::Protocol as Protocol>::Config) -> Run<'a, S> {
        let mut world = World::<S>::new(small.world.clone(), protocol);
        let clients = small.clients.iter().map(|program| {
            let site = world.topology().site_named(&program.site);
            let site = site.expect("programs are checked before they run");
            let node = world.nodes_at(site)[0];
            Client {
                number: world.add_client(node),
                place: 0,
                open: None,
            }
        });
        let clients = clients.collect();
        let mut run = Run {
            nodes: vec![0; world.nodes().count()],
            small,
            world,
            clients,
            answers: 0,
            asked: 0,
            crashes: 0,
            cuts: 0,
            cut: Vec::new(),
            passes: 0,
        };
        run.drain();
        for _ in 0..2 {
            run.pass(Exhaust::STEP);
            run.drain();
        }
        run
    }

    // ---- choices --------------------------------------------------------------------------------------------

    /// The choices for the next step, in an order that depends only on the state.
    pub fn choices(&self) -> Vec<Choice> {
        let mut choices: Vec<Choice> = self.world.due().into_iter().map(Choice::Due).collect();
        let clients = 0..self.clients.len();
        choices.extend(clients.filter(|&client| self.can_ask(client)).map(Choice::Ask));
        if self.passes < self.small.passes {
            choices.push(Choice::Pass);
        }
        let nodes: Vec<NodeId> = self.world.nodes().collect();
        let is_down = |&&node: &&NodeId| !self.world.is_running(node);
        choices.extend(nodes.iter().filter(is_down).map(|&node| Choice::Restart(node)));
        choices.extend(self.cut.iter().map(|&(a, b)| Choice::Heal(a, b)));
        if self.crashes < self.small.crashes {
            for &node in nodes.iter().filter(|&&node| self.world.is_running(node)) {
                choices.push(Choice::Crash(node, Loss::Process));
                if self.world.is_unsynced(node) {
                    choices.push(Choice::Crash(node, Loss::Power));
                }
            }
        }
        if self.cuts < self.small.cuts {
            let sites: Vec<SiteId> = self.world.topology().sites().collect();
            for (place, &a) in sites.iter().enumerate() {
                for &b in &sites[place + 1..] {
                    if !self.cut.contains(&(a, b)) {
                        choices.push(Choice::Cut(a, b));
                    }
                }
            }
        }
        choices
    }

    fn action(&self, client: usize) -> Option<&'a Action> {
        self.small.clients[client].actions.get(self.clients[client].place)
    }

    fn can_ask(&self, client: usize) -> bool {
        let known = &self.clients[client];
        let node = self.world.node_of_client(known.number);
        known.open.is_none() && self.action(client).is_some() && self.world.is_running(node)
    }

    /// The choice, in a few words.
    pub fn words(&self, choice: &Choice) -> String {
        let node = |node| self.world.node_name(node);
        let site = |site| self.world.topology().site_name(site);
        match choice {
            Choice::Due(due) => self.world.words_of(*due),
            Choice::Ask(client) => {
                let at = node(self.world.node_of_client(self.clients[*client].number));
                let action = self.action(*client).map_or_else(String::new, Action::to_string);
                format!("client {client} at {at}: {action}")
            }
            Choice::Pass => format!("{} pass", Exhaust::STEP),
            Choice::Restart(which) => format!("{} starts again", node(*which)),
            Choice::Heal(a, b) => format!("the cut between {} and {} heals", site(*a), site(*b)),
            Choice::Crash(which, Loss::Power) => {
                format!("the power of {} fails: what was not synced is gone", node(*which))
            }
            Choice::Crash(which, _) => format!("the process of {} ends", node(*which)),
            Choice::Cut(a, b) => format!("{} and {} are cut off from each other", site(*a), site(*b)),
        }
    }

    /// Carries out a choice.
    pub fn take(&mut self, choice: &Choice) {
        match *choice {
            Choice::Due(due) => {
                let what = (self.world.words_of(due), self.world.content_of(due));
                for node in self.world.nodes_of(due) {
                    self.happened_to(node, &what);
                }
                self.world.choose(due);
            }
            Choice::Ask(client) => self.ask(client),
            Choice::Pass => {
                self.passes += 1;
                self.pass(Exhaust::STEP);
            }
            Choice::Restart(node) => {
                self.happened_to(node, &"restart");
                self.world.restart(node);
            }
            Choice::Heal(a, b) => {
                self.cut.retain(|&pair| pair != (a, b));
                self.world.set_sites_cut(a, b, false);
            }
            Choice::Crash(node, loss) => {
                self.crashes += 1;
                self.happened_to(node, &loss);
                self.world.crash_by(node, loss, None);
            }
            Choice::Cut(a, b) => {
                self.cuts += 1;
                self.cut.push((a, b));
                for site in [a, b] {
                    for &node in self.world.nodes_at(site).to_vec().iter() {
                        self.happened_to(node, &("cut", a, b));
                    }
                }
                self.world.set_sites_cut(a, b, true);
            }
        }
        self.world.follow_up();
        self.hear();
    }

    fn ask(&mut self, client: usize) {
        let Some(action) = self.action(client) else { return };
        let known = &mut self.clients[client];
        let operation = action.operation(client, known.place);
        let node = self.world.node_of_client(known.number);
        known.place += 1;
        let asked = (client, known.place);
        self.asked = self.asked.wrapping_add(mixed(self.world.time().0, &asked));
        match (operation, action) {
            (Some(operation), _) => {
                let id = self.world.invoke(known.number, operation);
                known.open = Some(id);
                self.happened_to(node, &asked);
            }
            (None, Action::Move(site)) => {
                let site = self.world.topology().site_named(site);
                let site = site.expect("programs are checked before they run");
                let to = self.world.nodes_at(site)[0];
                self.world.move_client(known.number, to);
                self.happened_to(node, &asked);
                self.happened_to(to, &asked);
            }
            (None, _) => {}
        }
    }

    fn pass(&mut self, time: Micros) {
        self.world.pass(time);
        self.hear();
    }

    /// Clients receive their answers, or learn that there will be none.
    fn hear(&mut self) {
        for id in self.world.take_over() {
            let Some(client) = self.clients.iter_mut().find(|client| client.open == Some(id)) else {
                continue;
            };
            client.open = None;
            let returned = format!("{:?}", self.world.record(id).returned);
            self.answers = mixed(self.answers, &(self.asked, client.number, client.place, returned));
        }
    }

    // ---- the state ------------------------------------------------------------------------------------------

    fn happened_to(&mut self, node: NodeId, what: &impl Hash) {
        let known = &mut self.nodes[usize::from(node.0)];
        *known = mixed(*known, &(self.world.time().0, what));
    }

    /// A checksum of everything on which the rest of the execution depends.
    pub fn state(&self) -> u64 {
        let faults = (self.crashes, self.cuts, &self.cut);
        mixed(
            self.world.time().0,
            &(&self.nodes, self.answers, self.asked, faults),
        )
    }

    // ---- the end --------------------------------------------------------------------------------------------

    /// All faults are put right, everything that is due happens in order, and clients do what they have not done. The world must come to
    /// rest with the same data at every site.
    pub fn end(&mut self) {
        for (a, b) in std::mem::take(&mut self.cut) {
            self.world.set_sites_cut(a, b, false);
        }
        let nodes: Vec<NodeId> = self.world.nodes().collect();
        nodes.iter().for_each(|&node| self.world.restart(node));
        let end = self.world.time() + LIVENESS;
        let (mut step, mut calm, mut stamped) = (Exhaust::STEP, 0, Hlc::ZERO);
        loop {
            self.drain();
            let may_ask: Vec<usize> = (0..self.clients.len())
                .filter(|&client| self.can_ask(client))
                .collect();
            if !may_ask.is_empty() {
                for client in may_ask {
                    self.ask(client);
                    self.world.follow_up();
                    self.hear();
                }
                continue;
            }
            calm = if self.world.is_quiet() { calm + 1 } else { 0 };
            if calm == 1 {
                stamped = self.world.stamped();
            }
            if calm > 1 && self.world.is_seen(stamped) {
                return self.world.compare_sites();
            }
            if self.world.time() >= end {
                let text = format!("not quiet {LIVENESS} after the last fault");
                return self.world.judge.report(Rule::Convergence, text);
            }
            self.pass(step);
            step = (step + step).min(MAX_STEP);
        }
    }

    /// Everything that is due happens, in its order, until nothing is due.
    fn drain(&mut self) {
        self.world.follow_up();
        self.hear();
        while let Some(&next) = self.world.due().first() {
            self.world.choose(next);
            self.hear();
        }
    }

    /// The rules that are broken so far, by the judge, which knows true time.
    pub fn judged(&self) -> Vec<Broken> {
        let violations = self.world.judge().violations().iter();
        violations
            .map(|found| Broken::new(found.rule.name(), &found.words))
            .collect()
    }

    /// The rules that are broken in the end. They include those about several answers together, which only the trace shows.
    pub fn broken(&self) -> Vec<Broken> {
        let mut broken = self.judged();
        let level = S::LEVELS.reads[0];
        if !level.promise().is_causal() {
            return broken;
        }
        let mut history = HistoryBuilder::new();
        let added = self.world.trace().try_for_each(|record| history.add(&record));
        match added.and_then(|()| history.finish()) {
            Ok(history) => {
                let report = Report::of(&history, &[]);
                for (promise, count) in report.against(level) {
                    let words = format!("the checker says: {count} against {promise}");
                    broken.push(Broken::new(promise, &words));
                }
            }
            Err(error) => broken.push(Broken::new("trace", &error.to_string())),
        }
        broken
    }

    /// A checksum of what clients were told, with everything that the answers prove.
    pub fn outcome(&self, broken: &[Broken]) -> u64 {
        let records = self.world.history().map(|(_, record)| record);
        let mut told: Vec<String> = records
            .map(|record| format!("{} {:?} {:?}", record.client, record.operation, record.returned))
            .collect();
        told.sort_unstable();
        let mut rules: Vec<&str> = broken.iter().map(|broken| broken.rule.as_str()).collect();
        rules.sort_unstable();
        mixed(0, &(told, rules))
    }

    /// What each client was told, in the order in which it asked.
    pub fn told(&self) -> Vec<String> {
        let own = |client| self.clients.iter().position(|known| known.number == client);
        let records = self
            .world
            .history()
            .filter_map(|(id, record)| Some((id, own(record.client)?, record)));
        records
            .map(|(id, client, record)| {
                format!(
                    "operation {}, client {client}: {}: {}",
                    id.0,
                    record.words(),
                    record.answer_words()
                )
            })
            .collect()
    }
}

fn mixed(before: u64, what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, what).hash(&mut hasher);
    hasher.finish()
}
