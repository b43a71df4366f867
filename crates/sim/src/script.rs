use crate::{BEGINNING, Diagram, OperationId, World, WorldOptions, plant};
use bytes::Bytes;
use goldenscript::{ArgumentConsumer, Command, Context, Runner};
use std::{collections::BTreeMap, error::Error, fmt::Write as _};
use turnbuckle_core::{
    Answer, Basis, Compute, Computed, Condition, Edit, Elements, Expiry, Failure, Freshness, Given, Hidden,
    Hlc, Key, Kind, Lifetime, Message as ChannelMessage, Micros, Operation, Proof, Protocol, PutOptions,
    ReplicaId, ReplicaSet, Retimes, Session, Settings, SiteId, Step, Transaction, Vector, VersionId, Wanted,
    Wish,
};
use turnbuckle_node::NodeId;

/// Runs golden scripts over a world. Commands that every protocol has:
///
/// ```text
///   cluster SITE.. [delay=10ms] [partitions=1] [nodes=1] [members=1 or "2,2,1"] [replica_sites=ALL] [durability=fsync] [clock=1ms] [plant=BUG,..]
///           [memory=BYTES] [retained=BYTES] [checkpoint=BYTES] [interval=60s] [segment=BYTES] [tail=BYTES] [window=BYTES]
///           [chunk=BYTES] [least=BYTES] [sync=1ms] [disk=0us] [batch=512] [shrink=1] [steady=true] [conditional=refuse] [A->B=30ms] [drifts="PPM,.."] [PARAMETER=VALUE]
///   put SITE KEY VALUE | del SITE KEY | get SITE KEY | siblings SITE KEY | mget SITE KEY.. | scan SITE | count SITE | wait SITE SITES [timeout=TIME] | publish SITE CHANNEL MESSAGE | heard NODE
///                       asks, and lets time pass until the answer comes; with `later=yes` it does not wait
///                       `as=LABEL` gives the answer a label, for `shown` (both also for what is computed, and for transactions); `level=LEVEL` names a level
///                       of put and del: `if=absent|present|LABEL` is a condition (the version that a labelled answer names),
///                       `expires=TIME|kept` an expiry (after that time), `previous=yes` asks for the value before,
///                       `replaces=LABEL|nothing` is the context: that of a labelled answer of `siblings`, or an empty one
///   expire SITE KEY expires=TIME [when=nx|xx|gt|lt] [previous=yes] | persist SITE KEY
///                       changes when a value expires
///   incr SITE KEY [NUMBER] | append SITE KEY VALUE
///                       computes a value from the one before it
///   multi SITE STEP.. [if=KEY:absent|present|LABEL,..]
///                       a transaction; its steps are `get:KEY`, `ttl:KEY`, `put:KEY:VALUE`, `expire:KEY:TIME`, `del:KEY`, `incr:KEY[:NUMBER]`, `append:KEY:VALUE`
///   client NAME SITE    a client of its own, which NAME stands for where a SITE asks; also of a node
///   move NAME SITE      it goes on at another site, with what its session knows
///   shown LABEL=ANSWER.. [LABEL..]
///                       whether the answers were these, and those of the labels alone were not all the same
///                       (several that belong together as LABEL/LABEL): `shown`, `prevented` with an answer that was another, or `not offered`
///   fill SITE COUNT     puts as many other keys, so that the log grows
///   advance TIME        lets time pass
///   settle              lets time pass until nothing is left to send
///   cut A B | heal A B  the ways between two sites, or two nodes; `cut A` cuts site A off from all
///   loss A B PPM        of a million frames from node A to node B that may be lost, so many are
///   crash NODE [power|lost|old] | restart NODE
///                       `lost`: its data directory is empty then; `old`: it is the last `backup`
///   backup NODE         copies its data directory
///   checkpoint NODE     a checkpoint, and lets time pass until it is done; with `later=yes` it does not wait
///   pause NODE TIME     its process does nothing for a while
///   lead NODE           an operator wants its replicas to lead
///   handover NODE       its replicas hand their leadership over
///   member NODE voter|learner|none
///                       an operator wants its replicas to be that in their groups; it may have to be said again
///   members             who votes in each group, as each node knows it
///   damage NODE KEY     the row of a key on its disk cannot be read any more, until it is written again
///   disk NODE PERCENT   its disk takes so many percent of the usual time
///   room NODE BYTES     other programs fill its disk, except for BYTES; `room NODE` alone: they are gone
///   clock NODE ahead|back TIME   its wall clock is set
///   receipts on|off     whether answers are shown with what they prove
///   status              every node's streams
///   audit               what was wrong with any answer so far
///   compare             whether all sites have the same, and what was acknowledged
///   diagram on          from now on, what nodes say to each other is written down
///   diagram             what they said since then, as a space-time diagram
/// ```
///
/// Times of versions are shown since the beginning. A node is named by its site, with a number where the site has several.
pub struct Script<S: Session> {
    protocol: <S::Protocol as Protocol>::Config,
    world: Option<World<S>>,
    /// The client at each site's first node, by site.
    clients: Vec<usize>,
    /// The clients that have a name.
    named: BTreeMap<String, usize>,
    /// The operations that have a label.
    labels: BTreeMap<String, OperationId>,
    /// The first write, if no fault came before it.
    first_write: Option<OperationId>,
    /// Whether a fault was asked for.
    is_disturbed: bool,
    receipts: bool,
    filled: u64,
    seen_violations: usize,
    /// The time from which a diagram is drawn.
    diagram_from: Option<Micros>,
}

type Answered = Result<String, Box<dyn Error>>;

impl<S: Session> Script<S> {
    /// A runner for one script.
    pub fn new(protocol: <S::Protocol as Protocol>::Config) -> Script<S> {
        Script {
            protocol,
            world: None,
            clients: Vec::new(),
            named: BTreeMap::new(),
            labels: BTreeMap::new(),
            first_write: None,
            is_disturbed: false,
            receipts: false,
            filled: 0,
            seen_violations: 0,
            diagram_from: None,
        }
    }

    /// The world, once there is a cluster in it.
    pub fn world(&self) -> Option<&World<S>> {
        self.world.as_ref()
    }

    fn there(&mut self) -> Result<&mut World<S>, Box<dyn Error>> {
        self.world
            .as_mut()
            .ok_or_else(|| "a script begins with `cluster`".into())
    }

    fn cluster(&mut self, command: &Command) -> Answered {
        let mut args = command.consume_args();
        let mut named = Vec::new();
        while let Some((name, value)) = args.next_key() {
            named.push((name.to_string(), value.to_string()));
        }
        let mut sites = Vec::new();
        while let Some(site) = args.next_pos() {
            sites.push(site.to_string());
        }
        let delay = named.iter().find(|(name, _)| name == "delay");
        let delay = delay.map_or(Ok(Micros::from_millis(10)), |(_, delay)| delay.parse())?;
        let mut options = WorldOptions::plain(sites, delay);
        let mut protocol = self.protocol.clone();
        let mut settings = Settings::default();
        let is_parameter = |name: &str| S::Protocol::PARAMETERS.iter().any(|known| known.name == name);
        for (name, value) in &named {
            match name.as_str() {
                name if is_parameter(name) => {
                    let given = value.parse().map_or(Given::Text(value), Given::Number);
                    settings.set(name, Settings::read::<S::Protocol>(name, given)?);
                }
                "plant" if plant::<S::Protocol>(&mut options, &mut protocol, value) => {}
                "plant" => return Err(format!("there is no bug named '{value}'").into()),
                name => set(&mut options, name, value)?,
            }
        }
        settings.change::<S::Protocol>(&mut protocol);
        let mut world = World::new(options, protocol);
        self.clients = world
            .topology()
            .clone()
            .sites()
            .map(|site| world.add_client(world.nodes_at(site)[0]))
            .collect();
        // Time for the links to come up.
        world.advance(Micros::from_millis(100));
        self.world = Some(world);
        (self.receipts, self.seen_violations) = (false, 0);
        self.diagram_from = None;
        self.named.clear();
        self.labels.clear();
        Ok(String::new())
    }

    fn site(&mut self, name: Option<&str>) -> Result<SiteId, Box<dyn Error>> {
        let name = name.ok_or("a site is missing")?;
        let site = self.there()?.topology().site_named(name);
        site.ok_or_else(|| format!("there is no site '{name}'").into())
    }

    fn node(&mut self, name: Option<&str>) -> Result<NodeId, Box<dyn Error>> {
        let name = name.ok_or("a node is missing")?;
        let world = self.there()?;
        let found = world.nodes().find(|&node| world.node_name(node) == name);
        found.ok_or_else(|| format!("there is no node '{name}'").into())
    }

    /// A client by its name, or the client of a site.
    fn client(&mut self, name: &str) -> Result<usize, Box<dyn Error>> {
        if let Some(&client) = self.named.get(name) {
            return Ok(client);
        }
        let site = self.site(Some(name))?;
        Ok(self.clients[usize::from(site.0)])
    }

    fn name_or_move(&mut self, command: &Command) -> Answered {
        let mut args = command.consume_args();
        let name = args.next_pos().ok_or("a name is missing")?.to_string();
        let node = self.node_or_first_of_site(args.next_pos())?;
        let known = self.named.get(&name).copied();
        let world = self.there()?;
        match (command.name.as_str(), known) {
            ("move", Some(client)) => world.move_client(client, node),
            ("move", None) => return Err(format!("there is no client '{name}'").into()),
            (_, Some(_)) => return Err(format!("there is a client '{name}' already").into()),
            (_, None) if world.topology().site_named(&name).is_some() => {
                return Err(format!("'{name}' is a site").into());
            }
            (_, None) => {
                let client = world.add_client(node);
                self.named.insert(name, client);
            }
        }
        Ok(String::new())
    }

    fn node_or_first_of_site(&mut self, name: Option<&str>) -> Result<NodeId, Box<dyn Error>> {
        match self.site(name) {
            Ok(site) => Ok(self.there()?.nodes_at(site)[0]),
            Err(_) => self.node(name),
        }
    }

    /// An anomaly is shown if all answers are as the command says. Otherwise the first answer that is not tells why it is prevented.
    fn shown(&mut self, command: &Command) -> Answered {
        let mut args = command.consume_args();
        let mut prevented = None;
        while let Some((label, expected)) = args.next_key() {
            match self.labelled(label)? {
                None => return Ok("not offered\n".into()),
                Some(words) if words != expected && prevented.is_none() => {
                    prevented = Some(format!("prevented: {label} is {words}\n"));
                }
                Some(_) => {}
            }
        }
        let mut alike = Vec::new();
        while let Some(labels) = args.next_pos() {
            let answers = labels.split('/').map(|label| self.labelled(label));
            match answers.collect::<Result<Option<Vec<String>>, _>>()? {
                None => return Ok("not offered\n".into()),
                Some(words) => alike.push(words.join(", ")),
            }
        }
        if prevented.is_none() && !alike.is_empty() && alike.windows(2).all(|pair| pair[0] == pair[1]) {
            prevented = Some(format!("prevented: all answers are {}\n", alike[0]));
        }
        if prevented.is_some() {
            self.check_first_write()?;
        }
        Ok(prevented.unwrap_or_else(|| "shown\n".into()))
    }

    /// If the first write failed, nothing could be shown: that does not prevent the anomaly.
    fn check_first_write(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(id) = self.first_write else {
            return Ok(());
        };
        match self.there()?.record(id).answer() {
            Some(Answer::Written { .. } | Answer::Replaced(_)) => Ok(()),
            answer => {
                let words = answer.map_or("no answer".into(), |answer| answer_text(answer, false));
                Err(format!("the first write was not carried out, so nothing is prevented: {words}").into())
            }
        }
    }

    /// The answer with a label, as scripts show it. `None`: the keyspace has no such operation.
    fn labelled(&mut self, label: &str) -> Result<Option<String>, Box<dyn Error>> {
        let id = self.labels.get(label).copied();
        let id = id.ok_or_else(|| format!("no answer has the label '{label}'"))?;
        let record = self.there()?.record(id);
        Ok(match record.answer() {
            Some(Answer::Failed(Failure::Unsupported(_) | Failure::BadLevel { .. })) => None,
            Some(answer) => Some(answer_text(answer, record.is_delete())),
            None => Some("no answer".into()),
        })
    }

    fn ask(
        &mut self,
        command: &Command,
        make: impl FnOnce(Vec<Key>, Option<Bytes>) -> Operation,
    ) -> Answered {
        let mut args = command.consume_args();
        let wanted = args.take_key("level").map(str::parse::<Wanted>).transpose()?;
        let later = args.take_key("later").is_some();
        let label = args.take_key("as").map(str::to_string);
        let time = args.take_key("timeout").map(str::parse::<Micros>).transpose()?;
        let options = match command.name.as_str() {
            "put" | "del" | "expire" | "persist" => self.put_options(&command.name, &mut args)?,
            _ => PutOptions::default(),
        };
        let site_name = args.next_pos().unwrap_or_default().to_string();
        let client = self.client(&site_name)?;
        let mut words: Vec<String> = Vec::new();
        while let Some(word) = args.next_pos() {
            words.push(word.to_string());
        }
        args.reject_next()?;
        let value = (command.name == "put")
            .then(|| words.pop())
            .flatten()
            .map(Bytes::from);
        let keys: Vec<Key> = words.iter().map(|word| Key::from(word.as_str())).collect();
        let mut operation = make(keys, value);
        if let Operation::Wait { timeout, .. } = &mut operation {
            *timeout = time;
        } else if time.is_some() {
            return Err("only a wait has a timeout".into());
        }
        if options != PutOptions::default() {
            operation = operation.with(options);
        }
        let id = self.there()?.invoke(client, operation.wanting(wanted));
        self.labels.extend(label.map(|label| (label, id)));
        if command.name == "put" && !self.is_disturbed {
            self.first_write.get_or_insert(id);
        }
        if later {
            return Ok(String::new());
        }
        let world = self.there()?;
        let until = world.time() + Micros::from_millis(10_000);
        world.run_until(until, |world| !world.is_open(id));
        self.show(&site_name, id)
    }

    fn put_options(
        &mut self,
        command: &str,
        args: &mut ArgumentConsumer<'_>,
    ) -> Result<PutOptions, Box<dyn Error>> {
        let retimes = match (command, args.take_key("when")) {
            ("put" | "del", None) => None,
            (_, None) => Some(Retimes::Any),
            (_, Some("nx")) => Some(Retimes::NeverExpires),
            (_, Some("xx")) => Some(Retimes::Expires),
            (_, Some("gt")) => Some(Retimes::Later),
            (_, Some("lt")) => Some(Retimes::Earlier),
            (_, Some(other)) => return Err(format!("expected nx, xx, gt or lt, found '{other}'").into()),
        };
        let condition = match args.take_key("if") {
            None => None,
            Some("absent") => Some(Condition::Absent),
            Some("present") => Some(Condition::Present),
            Some(label) => Some(Condition::Version(self.version_of_label(label)?)),
        };
        let expiry = match args.take_key("expires") {
            None => None,
            Some("kept") => Some(Expiry::Kept),
            Some(span) => Some(Expiry::After(span.parse()?)),
        };
        let replaces = match args.take_key("replaces") {
            None => None,
            Some("nothing") => Some(Vector::ZERO),
            Some(label) => match self.answer_of(label)? {
                Some(Answer::Siblings(siblings)) => Some(siblings.context.clone()),
                _ => return Err(format!("the answer '{label}' has no context").into()),
            },
        };
        Ok(PutOptions {
            condition,
            expiry,
            returns_previous: args.take_key("previous").is_some(),
            replaces,
            computes: None,
            retimes,
        })
    }

    /// A step of a transaction: `get:KEY`, `ttl:KEY`, `put:KEY:VALUE`, `expire:KEY:TIME`, `del:KEY`, `incr:KEY`, `incr:KEY:NUMBER`, `append:KEY:VALUE`, `hset:KEY:FIELD=VALUE,..`,
    /// `hincr:KEY:FIELD=NUMBER`, `hdel:KEY:FIELD,..`, `sadd:KEY:MEMBER,..`, `srem:KEY:MEMBER,..`.
    fn step(word: &str) -> Result<Step, Box<dyn Error>> {
        let mut parts = word.splitn(3, ':');
        let (name, key, value) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let key = Key::from(key.ok_or_else(|| format!("the step '{word}' has no key"))?);
        let bytes = || Bytes::copy_from_slice(value.unwrap_or_default().as_bytes());
        let computing = |compute| {
            let options = PutOptions {
                computes: Some(compute),
                ..PutOptions::default()
            };
            Some(Box::new(options))
        };
        Ok(match name {
            "get" => Step::Get(key),
            "ttl" => Step::Lifetime(key),
            "put" => Step::Put(key, Some(bytes()), None),
            "del" => Step::Put(key, None, None),
            "expire" => {
                let options = PutOptions {
                    expiry: Some(Expiry::After(value.unwrap_or_default().parse()?)),
                    retimes: Some(Retimes::Any),
                    ..PutOptions::default()
                };
                Step::Put(key, None, Some(Box::new(options)))
            }
            "incr" => {
                let more = value.unwrap_or("1").parse()?;
                Step::Put(key, None, computing(Compute::Add(more)))
            }
            "append" => Step::Put(key, None, computing(Compute::Append(bytes()))),
            "hset" | "hdel" | "hincr" | "sadd" | "srem" => {
                let edit = Self::edit(name, value.unwrap_or_default())?;
                Step::Put(key, None, computing(Compute::Edit(Box::new(edit))))
            }
            _ => return Err(format!("a transaction has no step '{word}'").into()),
        })
    }

    fn edit(name: &str, elements: &str) -> Result<Edit, Box<dyn Error>> {
        let names = || {
            elements
                .split(',')
                .map(|name| Bytes::copy_from_slice(name.as_bytes()))
        };
        let pair = |element: &str| {
            let (name, value) = element.split_once('=').ok_or("an element is FIELD=VALUE")?;
            Ok::<_, Box<dyn Error>>((Bytes::copy_from_slice(name.as_bytes()), value.to_string()))
        };
        Ok(match name {
            "hset" => {
                let pairs = elements.split(',').map(pair);
                let pairs = pairs.map(|pair| pair.map(|(name, value)| (name, Bytes::from(value))));
                Edit::Set(pairs.collect::<Result<_, _>>()?)
            }
            "hincr" => {
                let (name, more) = pair(elements)?;
                Edit::Add(name, more.parse()?)
            }
            "hdel" => Edit::Remove(Kind::Hash, names().collect()),
            "sadd" => Edit::Insert(names().collect()),
            _ => Edit::Remove(Kind::Set, names().collect()),
        })
    }

    /// `multi SITE STEP.. [if=KEY:absent|present|LABEL,..]`, or one of these steps alone.
    fn transact(&mut self, command: &Command) -> Answered {
        let mut args = command.consume_args();
        let later = args.take_key("later").is_some();
        let label = args.take_key("as").map(str::to_string);
        let mut conditions = Vec::new();
        for condition in args.take_key("if").iter().flat_map(|all| all.split(',')) {
            let (key, condition) = condition.split_once(':').ok_or("a condition is KEY:WHAT")?;
            let condition = match condition {
                "absent" => Condition::Absent,
                "present" => Condition::Present,
                label => Condition::Version(self.version_of_label(label)?),
            };
            conditions.push((Key::from(key), condition));
        }
        let site_name = args.next_pos().unwrap_or_default().to_string();
        let client = self.client(&site_name)?;
        let mut words = Vec::new();
        while let Some(word) = args.next_pos() {
            words.push(word.to_string());
        }
        args.reject_next()?;
        let operation = match command.name.as_str() {
            "multi" => {
                let steps = words
                    .iter()
                    .map(|word| Self::step(word))
                    .collect::<Result<_, _>>()?;
                let transaction = Box::new(Transaction { conditions, steps });
                let level = None;
                Operation::Transact { transaction, level }
            }
            name => match Self::step(&format!("{name}:{}", words.join(":")))? {
                Step::Put(key, value, Some(options)) => Operation::put(key, value).with(*options),
                _ => return Err("only a value that is computed".into()),
            },
        };
        let id = self.there()?.invoke(client, operation);
        self.labels.extend(label.map(|label| (label, id)));
        if later {
            return Ok(String::new());
        }
        let world = self.there()?;
        let until = world.time() + Micros::from_millis(10_000);
        world.run_until(until, |world| !world.is_open(id));
        self.show(&site_name, id)
    }

    fn answer_of(&mut self, label: &str) -> Result<Option<&Answer>, Box<dyn Error>> {
        let id = self.labels.get(label).copied();
        let id = id.ok_or_else(|| format!("no answer has the label '{label}'"))?;
        Ok(self.there()?.record(id).answer())
    }

    /// The version that the answer with this label names.
    fn version_of_label(&mut self, label: &str) -> Result<VersionId, Box<dyn Error>> {
        let id = self.labels.get(label).copied();
        let id = id.ok_or_else(|| format!("no answer has the label '{label}'"))?;
        let returned = self.there()?.record(id).returned.as_ref();
        let receipt = returned.and_then(|(_, (_, receipt))| receipt.as_ref());
        let version = receipt.and_then(|receipt| receipt.version);
        version.ok_or_else(|| format!("the answer '{label}' names no version").into())
    }

    fn show(&mut self, site: &str, id: OperationId) -> Answered {
        let receipts = self.receipts;
        let world = self.there()?;
        let record = world.record(id);
        let Some((_, (answer, receipt))) = &record.returned else {
            return Ok(format!("{site}: no answer\n"));
        };
        let shown = answer_text(answer, record.is_delete());
        let mut line = format!("{site}: {shown}");
        if let Some(receipt) = receipt.as_ref().filter(|_| receipts) {
            let version = receipt
                .version
                .map_or("no version".to_string(), |version| world.version_name(version));
            let base = receipt
                .base
                .map_or(String::new(), |base| format!(" of {}", world.version_name(base)));
            let staleness = receipt
                .staleness
                .map_or("nothing proven".to_string(), |staleness| {
                    format!("reflects all writes older than {staleness}")
                });
            let until = receipt.until.map_or(String::new(), |until| {
                format!("; until {}", until.since(BEGINNING))
            });
            let decided = match receipt.decided_at_site {
                true => "; decided at one site",
                false => "",
            };
            let proof = match &receipt.proof {
                Proof::Plain
                | Proof::Causal {
                    hidden: Hidden { versions: 0, .. },
                    ..
                } => String::new(),
                Proof::Causal {
                    hidden: Hidden { versions: count, .. },
                    ..
                } => format!("; {count} newer that cannot be seen yet"),
                Proof::Consensus(proof) => {
                    let redirects = match proof.redirects {
                        0 => String::new(),
                        redirects => format!(" after {redirects} redirects"),
                    };
                    let basis = match proof.basis {
                        Basis::Nothing => String::new(),
                        basis => format!(" by {}", basis.name()),
                    };
                    let names = proof.held_by.iter().map(|of| world.topology().replica_name(of));
                    let held_by = match names.collect::<Vec<_>>().join(" ") {
                        names if names.is_empty() => names,
                        names => format!(" held by {names}"),
                    };
                    format!(
                        "; entry {} of term {}{basis}{held_by}{redirects}",
                        proof.index, proof.term
                    )
                }
                Proof::Regional(proof) => {
                    let redirects = match proof.redirects {
                        0 => String::new(),
                        redirects => format!(" after {redirects} redirects"),
                    };
                    let topology = world.topology();
                    let behind = proof
                        .lags()
                        .map(|(site, lag)| format!("{} {lag}", topology.replica_name(site)));
                    let behind = behind.collect::<Vec<_>>().join(", ");
                    format!("; entry {}; newest of {behind} ago{redirects}", proof.index)
                }
                Proof::Quorum(quorum) => {
                    let topology = world.topology();
                    let names = |replicas: ReplicaSet| {
                        let names = replicas.iter().map(|replica| topology.replica_name(replica));
                        names.collect::<Vec<_>>().join(" ")
                    };
                    let answered = names(quorum.answered);
                    let freshness = match quorum.freshness.as_deref() {
                        Some(Freshness::Proven(replicas)) => format!("; fresh: {}", names(*replicas)),
                        Some(Freshness::Stale(staleness)) => format!("; alone it proves {staleness}"),
                        Some(Freshness::Unknown) => "; alone it proves nothing".to_string(),
                        Some(Freshness::Cut(cut)) => {
                            format!("; as of {}", world.time_name(*cut))
                        }
                        None => String::new(),
                    };
                    match quorum.covers {
                        covers if covers == 1 || receipt.staleness.is_none() => {
                            format!("; answered: {answered}{freshness}")
                        }
                        copies => format!(" that {copies} replicas have; answered: {answered}{freshness}"),
                    }
                }
            };
            let siblings = if receipt.siblings { "; it has siblings" } else { "" };
            write!(
                line,
                " ({version}{base}{until}{decided}; {staleness}{proof}{siblings})"
            )?;
        }
        Ok(line + "\n")
    }

    /// Who votes in each group, as each node knows it.
    fn members(&mut self) -> Answered {
        let world = self.there()?;
        let topology = world.topology().clone();
        let names = |replicas: ReplicaSet| {
            let names = replicas
                .iter()
                .map(|replica| replica.name(topology.site_name(replica.site())));
            names.collect::<Vec<_>>().join(" ")
        };
        let mut out = String::new();
        for node in world.nodes() {
            for (partition, group) in world.statuses(node).into_iter().flat_map(|status| status.groups) {
                write!(out, "{}: ", world.node_name(node))?;
                if topology.partitions() > 1 {
                    write!(out, "partition {partition}: ")?;
                }
                write!(out, "{} vote", names(group.voters))?;
                if !group.outgoing.is_empty() {
                    write!(out, ", and {} as before", names(group.outgoing))?;
                }
                if !group.learners.is_empty() {
                    write!(out, "; {} learn", names(group.learners))?;
                }
                if group.leads {
                    write!(out, "; it leads in term {}", group.term)?;
                }
                if let Some(refusal) = group.refusal {
                    write!(out, "; not changed: {refusal:?}")?;
                }
                out.push('\n');
            }
        }
        Ok(out)
    }

    fn status(&mut self) -> Answered {
        let world = self.there()?;
        let mut lines = String::new();
        for node in world.nodes().collect::<Vec<_>>() {
            let name = world.node_name(node);
            let Some(status) = world.status(node) else {
                writeln!(lines, "{name}: down")?;
                continue;
            };
            writeln!(lines, "{name}: {} keys", status.live_keys)?;
            for stream in status.streams {
                let peer = world.topology().replica_name(stream.peer);
                let copy = if stream.receiving_copy {
                    ", a copy is coming from there"
                } else {
                    ""
                };
                writeln!(
                    lines,
                    "  to {peer}, partition {}: {}, {} of {} acknowledged; received {} from there{copy}",
                    stream.partition, stream.state, stream.acked, stream.ready, stream.received.number
                )?;
            }
        }
        Ok(lines)
    }

    fn audit(&mut self) -> Answered {
        let seen = self.seen_violations;
        let world = self.there()?;
        let all = world.judge().violations();
        let mut lines: String = all[seen..].iter().map(|line| format!("{line}\n")).collect();
        if lines.is_empty() {
            lines = "nothing wrong\n".to_string();
        }
        // Versions in the form in which scripts show them.
        let (count, lines) = (all.len(), world.with_names(&lines));
        self.seen_violations = count;
        Ok(lines)
    }

    fn cut(&mut self, command: &Command) -> Answered {
        let cut = command.name == "cut";
        let mut args = command.consume_args();
        let (first, second) = (args.next_pos(), args.next_pos());
        if self.site(first).is_err() {
            let (a, b) = (self.node(first)?, self.node(second)?);
            self.there()?.set_cut(a, b, cut);
            return Ok(String::new());
        }
        let a = self.site(first)?;
        let others: Vec<SiteId> = match second {
            Some(b) => vec![self.site(Some(b))?],
            None => {
                let sites = self.there()?.topology().sites();
                sites.filter(|&site| site != a).collect()
            }
        };
        for b in others {
            self.there()?.set_sites_cut(a, b, cut);
        }
        Ok(String::new())
    }

    fn settle(&mut self) -> Answered {
        Ok(match self.there()?.settle(Micros::from_millis(60_000)) {
            true => String::new(),
            false => "it does not come to rest\n".to_string(),
        })
    }

    fn diagram(&mut self, command: &Command) -> Answered {
        if command.consume_args().next_pos() == Some("on") {
            let world = self.there()?;
            world.log_messages();
            self.diagram_from = Some(world.time());
            return Ok(String::new());
        }
        let from = self.diagram_from.ok_or("`diagram on` comes before `diagram`")?;
        let world = self.there()?;
        let names: Vec<String> = world.nodes().map(|node| world.node_name(node)).collect();
        let log = world.messages().ok_or("nothing is written down")?;
        Ok(Diagram::new(log, &names).window(from, world.time()).text())
    }

    fn fill(&mut self, command: &Command) -> Answered {
        let mut args = command.consume_args();
        let site = self.site(args.next_pos())?;
        let count: u64 = args.next_pos().ok_or("a count is missing")?.parse()?;
        let client = self.clients[usize::from(site.0)];
        for _ in 0..count {
            self.filled += 1;
            let number = self.filled;
            let key = Key::from(format!("filler{number}").as_str());
            let operation = Operation::put(key, Bytes::from(format!("{number:0>200}")));
            let answer = self.there()?.ask(client, operation).map(|(answer, _)| answer);
            if !matches!(answer, Some(Answer::Written { .. })) {
                return Err(format!("filler {number} was answered with {answer:?}").into());
            }
        }
        Ok(String::new())
    }
}

fn set(options: &mut WorldOptions, name: &str, value: &str) -> Result<(), Box<dyn Error>> {
    match name {
        "delay" => {}
        "partitions" => options.partitions = value.parse()?,
        "conditional" => options.conditional = value.parse()?,
        "nodes" => options.nodes_per_site = value.parse()?,
        "members" => options.members = value.parse()?,
        "replica_sites" => options.replica_sites = Some(value.parse()?),
        "durability" => options.durability = value.parse()?,
        "clock" => options.clock_bound = value.parse()?,
        "memory" => options.memory_limit_bytes = value.parse()?,
        "retained" => options.retained_log_bytes = value.parse()?,
        "checkpoint" => options.checkpoint_log_bytes = value.parse()?,
        "interval" => options.checkpoint_interval = value.parse()?,
        "segment" => options.segment_bytes = value.parse()?,
        "window" => options.stream.window_bytes = value.parse()?,
        "tail" => options.stream.tail_bytes = value.parse()?,
        "least" => options.min_free_bytes = value.parse()?,
        "chunk" => options.chunk_bytes = value.parse()?,
        "sync" => options.sync = crate::Span::fixed(value.parse()?),
        "disk" => options.disk = crate::Span::fixed(value.parse()?),
        "drifts" => {
            let drifts = value.split(',').map(str::parse);
            options.clock_drifts_ppm = drifts.collect::<Result<_, _>>()?;
        }
        "steady" => options.steady_clocks = value.parse()?,
        "shrink" => options.shrink = value.parse::<std::num::NonZeroU32>()?.get(),
        "batch" => options.batch_keys = value.parse()?,
        other => match other.split_once("->") {
            Some((from, to)) => {
                let place = |name: &str| {
                    let place = options.sites.iter().position(|site| site == name);
                    place.ok_or_else(|| format!("there is no site '{name}'"))
                };
                let (from, to) = (place(from)?, place(to)?);
                options.delays[from][to] = value.parse()?;
            }
            None => return Err(format!("a cluster has no '{other}'").into()),
        },
    }
    Ok(())
}

/// An answer in the form in which scripts show it.
fn answer_text(answer: &Answer, is_delete: bool) -> String {
    match answer {
        Answer::Value(value) => text(value.as_ref()),
        Answer::Values(values) => values
            .iter()
            .map(|value| text(value.as_ref()))
            .collect::<Vec<_>>()
            .join(" "),
        Answer::Siblings(siblings) if siblings.versions.is_empty() => text(None),
        Answer::Siblings(siblings) => siblings
            .versions
            .iter()
            .map(|(_, value)| text(value.as_ref()))
            .collect::<Vec<_>>()
            .join(" | "),
        Answer::Written { existed: true } => "written over what was there".to_string(),
        Answer::Written { existed: false } => match is_delete {
            true => "there was nothing to delete".to_string(),
            false => "written".to_string(),
        },
        Answer::Replaced(before) => format!("written over {}", text(before.as_ref())),
        Answer::Unmet(unmet) => match (unmet.has_value, &unmet.value) {
            (true, None) => "not written: there is a value".to_string(),
            (_, value) => format!("not written: there is {}", text(value.as_ref())),
        },
        Answer::Keys { keys, .. } => {
            let mut keys: Vec<String> = keys.iter().map(Key::to_string).collect();
            keys.sort();
            format!("keys {}", keys.join(" "))
        }
        Answer::Count(count) => format!("{count} keys"),
        Answer::Sites(sites) => format!("{sites} sites"),
        Answer::Published => "published".to_string(),
        Answer::Computed(Computed::Number(number)) => text(Some(number)),
        Answer::Computed(Computed::Length(len)) => format!("{len} bytes"),
        Answer::Computed(Computed::Elements(count)) => format!("{count} elements"),
        Answer::Elements(elements) => elements_text(elements),
        Answer::NotComputed(why) => format!("not written: {why}"),
        Answer::Lifetime(Lifetime::NoValue) => "nothing".to_string(),
        Answer::Lifetime(Lifetime::Forever) => "never expires".to_string(),
        Answer::Lifetime(Lifetime::Until(until)) => format!("until {}", until.since(BEGINNING)),
        Answer::Versions(versions) => format!("{} versions", versions.len()),
        Answer::Transacted(None) => "not carried out: a condition does not hold".to_string(),
        Answer::Transacted(Some(steps)) => {
            let steps: Vec<String> = steps.iter().map(|step| answer_text(step, false)).collect();
            format!("[{}]", steps.join(" | "))
        }
        Answer::Failed(failure) => format!("{} {failure}", failure.word()),
    }
}

fn elements_text(elements: &Elements) -> String {
    let element = |(name, value): (&[u8], &[u8])| match elements.kind() {
        Kind::Hash => format!("{}={}", name.escape_ascii(), value.escape_ascii()),
        Kind::Set => name.escape_ascii().to_string(),
    };
    let elements: Vec<String> = elements.iter().map(element).collect();
    format!("{{{}}}", elements.join(" "))
}

fn text(value: Option<&Bytes>) -> String {
    value.map_or("nothing".to_string(), |value| value.escape_ascii().to_string())
}

impl<S: Session> World<S> {
    /// A version's name in scripts: time since the beginning, count, site.
    fn version_name(&self, version: VersionId) -> String {
        let site = self.topology().replica_name(version.replica);
        format!("{}@{site}", self.time_name(version.at))
    }

    /// A timestamp, since the beginning.
    fn time_name(&self, at: Hlc) -> String {
        let count = match at.counter() {
            0 => String::new(),
            count => format!("+{count}"),
        };
        format!("{}{count}", at.wall().since(BEGINNING))
    }

    /// The text with version numbers replaced by their names.
    fn with_names(&self, text: &str) -> String {
        let word = |word: &str| {
            let number = word.trim_end_matches([',', ')', ';', ':']);
            let end = &word[number.len()..];
            let version = number.split_once('@').and_then(|(at, site)| {
                Some(VersionId {
                    at: Hlc::parse(at)?,
                    replica: ReplicaId(site.parse().ok()?),
                })
            });
            match version {
                Some(version) => self.version_name(version) + end,
                None => word.to_string(),
            }
        };
        text.split_inclusive([' ', '\n'])
            .map(|part| match part.strip_suffix([' ', '\n']) {
                Some(bare) => word(bare) + &part[bare.len()..],
                None => word(part),
            })
            .collect()
    }
}

impl<S: Session> Runner for Script<S> {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Answered {
        const FAULTS: [&str; 7] = ["cut", "crash", "loss", "pause", "damage", "room", "clock"];
        self.is_disturbed |= FAULTS.contains(&command.name.as_str());
        let mut args = command.consume_args();
        match command.name.as_str() {
            "cluster" => self.cluster(command),
            "put" | "del" | "expire" | "persist" => self.ask(command, |mut keys, value| {
                Operation::put(keys.pop().unwrap_or_else(|| Key::from("")), value)
            }),
            "get" => self.ask(command, |mut keys, _| {
                Operation::get(keys.pop().unwrap_or_else(|| Key::from("")))
            }),
            "siblings" => self.ask(command, |mut keys, _| {
                Operation::siblings(keys.pop().unwrap_or_else(|| Key::from("")))
            }),
            "multi" | "incr" | "append" | "hset" | "hdel" | "hincr" | "sadd" | "srem" => {
                self.transact(command)
            }
            "mget" => self.ask(command, |keys, _| Operation::ReadMany { keys, level: None }),
            "scan" => self.ask(command, |_, _| Operation::Scan {
                cursor: 0,
                count: 1000,
            }),
            "count" => self.ask(command, |_, _| Operation::Count),
            "wait" => self.ask(command, |sites, _| Operation::Wait {
                sites: sites
                    .first()
                    .map_or(0, |sites| sites.to_string().parse().unwrap_or(0)),
                timeout: None,
            }),
            "publish" => self.ask(command, |words, _| {
                let mut words = words.into_iter().map(|word| word.0);
                let mut next = || words.next().unwrap_or_default();
                let message = Box::new(ChannelMessage {
                    channel: next(),
                    text: next(),
                });
                Operation::Publish { message }
            }),
            "heard" => {
                let name = args.next_pos().unwrap_or_default().to_string();
                let node = self.node(Some(&name))?;
                let heard = self.there()?.take_heard(node);
                let lines = heard.iter().map(|(channel, text)| {
                    format!(
                        "{name}: hears {} of {}\n",
                        text.escape_ascii(),
                        channel.escape_ascii()
                    )
                });
                Ok(match heard.is_empty() {
                    true => format!("{name}: hears nothing\n"),
                    false => lines.collect(),
                })
            }
            "fill" => self.fill(command),
            "advance" => {
                let time = args.next_pos().ok_or("a time is missing")?.parse()?;
                self.there()?.advance(time);
                Ok(String::new())
            }
            "settle" => self.settle(),
            "client" | "move" => self.name_or_move(command),
            "shown" => self.shown(command),
            "cut" | "heal" => self.cut(command),
            "crash" => {
                let node = self.node(args.next_pos())?;
                let loss = args.next_pos().map(str::parse).transpose()?.unwrap_or_default();
                self.there()?.crash(node, loss);
                Ok(String::new())
            }
            "loss" => {
                let (from, to) = (self.node(args.next_pos())?, self.node(args.next_pos())?);
                let ppm = args.next_pos().ok_or("a number is missing")?.parse()?;
                self.there()?.set_loss(from, to, ppm);
                Ok(String::new())
            }
            "backup" => {
                let node = self.node(args.next_pos())?;
                self.there()?.backup(node);
                Ok(String::new())
            }
            "restart" => {
                let node = self.node(args.next_pos())?;
                self.there()?.restart(node);
                Ok(String::new())
            }
            "pause" => {
                let node = self.node(args.next_pos())?;
                let span = args.next_pos().ok_or("a time is missing")?.parse()?;
                self.there()?.pause(node, span);
                Ok(String::new())
            }
            "lead" | "handover" => {
                let wish = match command.name.as_str() {
                    "lead" => Wish::Lead,
                    _ => Wish::HandOver,
                };
                let node = self.node(args.next_pos())?;
                self.there()?.wish(node, None, wish);
                Ok(String::new())
            }
            "member" => {
                let node = self.node(args.next_pos())?;
                let wanted = args.next_pos().ok_or("what it is to be is missing")?.parse()?;
                self.there()?.want_members(node, wanted, 0);
                Ok(String::new())
            }
            "damage" => {
                let node = self.node(args.next_pos())?;
                let key = Key::from(args.next_pos().ok_or("a key is missing")?);
                match self.there()?.damage_key(node, &key) {
                    true => Ok(String::new()),
                    false => Err(format!("no row of {key} is on that disk").into()),
                }
            }
            "disk" => {
                let node = self.node(args.next_pos())?;
                let percent = args.next_pos().ok_or("a number of percent is missing")?.parse()?;
                self.there()?.set_slow_disk(node, percent);
                Ok(String::new())
            }
            "room" => {
                let node = self.node(args.next_pos())?;
                match args.next_pos() {
                    Some(free) => {
                        let free = free.parse()?;
                        self.there()?.fill_disk(node, free);
                    }
                    None => self.there()?.make_room(node),
                }
                Ok(String::new())
            }
            "clock" => {
                let node = self.node(args.next_pos())?;
                let is_back = args.next_pos() == Some("back");
                let by: Micros = args.next_pos().ok_or("a time is missing")?.parse()?;
                let by_us = i64::try_from(by.0)?;
                self.there()?
                    .step_clock(node, if is_back { -by_us } else { by_us });
                Ok(String::new())
            }
            "checkpoint" => {
                let later = args.take_key("later").is_some();
                let node = self.node(args.next_pos())?;
                let world = self.there()?;
                world.checkpoint(node);
                if !later {
                    let until = world.time() + Micros::from_millis(60_000);
                    world.run_until(until, |world| !world.is_checkpointing(node));
                }
                Ok(String::new())
            }
            "receipts" => {
                self.receipts = args.next_pos() == Some("on");
                Ok(String::new())
            }
            "status" => self.status(),
            "members" => self.members(),
            "audit" => self.audit(),
            "diagram" => self.diagram(command),
            "compare" => {
                self.there()?.compare_sites();
                self.audit()
            }
            other => Err(format!("there is no command '{other}'").into()),
        }
    }
}
