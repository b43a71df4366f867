//! What clients do with texts (`text.rs`).
use super::{Clients, Mixed};
use crate::text::{APPENDS, PLACES, TOKEN_BYTES, key, token};
use turnbuckle_core::{Compute, Expiry, Key, Micros, Operation, PutOptions, Retimes, SiteId};

impl Clients {
    /// An operation on one of the texts of the client's keyspace. The client is at this site.
    pub(super) fn on_text(&mut self, mixed: Mixed, client: usize, site: SiteId, now: Micros) -> Operation {
        let keyspace = self.all[client].keyspace;
        match self.random.below(10) {
            0..=3 => {
                let text = self.texts.entry((keyspace, site)).or_default();
                *text += 1;
                let key = key(keyspace, Some(site), (*text - 1) / APPENDS);
                self.append(key)
            }
            4 => {
                let sites = self.topology.replicas().len() as u64;
                let of = match self.random.percent(70) {
                    true => site,
                    false => SiteId(self.random.below(sites) as u16),
                };
                let text = self.texts.get(&(keyspace, of)).copied().unwrap_or(0);
                let key = key(keyspace, Some(of), text.saturating_sub(1) / APPENDS);
                Operation::get(key).wanting(self.read_level(mixed))
            }
            number => {
                let shared = key(keyspace, None, self.random.below(4));
                match number {
                    5..=6 => self.append(shared),
                    7 => self.overwrite(shared),
                    8 => Operation::get(shared).wanting(self.read_level(mixed)),
                    _ => self.end(shared, now),
                }
            }
        }
    }

    fn append(&mut self, key: Key) -> Operation {
        self.written += 1;
        self.compute(key, Compute::Append(token(self.written)))
    }

    fn overwrite(&mut self, key: Key) -> Operation {
        self.written += 1;
        let place = self.random.below(PLACES) * TOKEN_BYTES as u64;
        self.compute(key, Compute::Overwrite(place as u32, token(self.written)))
    }

    fn compute(&self, key: Key, compute: Compute) -> Operation {
        let options = PutOptions {
            computes: Some(compute),
            ..PutOptions::default()
        };
        Operation::put(key, None).with(options).at(self.load.write)
    }

    /// Deletes a text, or lets it expire soon.
    fn end(&mut self, key: Key, now: Micros) -> Operation {
        let soon = Micros(self.random.of(1..=200_000));
        let options = match self.random.below(4) {
            0 => PutOptions::default(),
            1 => PutOptions {
                returns_previous: true,
                ..PutOptions::default()
            },
            number => PutOptions {
                retimes: Some(Retimes::Any),
                expiry: Some(match number {
                    2 => Expiry::After(soon),
                    _ => Expiry::At(now + soon),
                }),
                ..PutOptions::default()
            },
        };
        Operation::delete(key).with(options).at(self.load.write)
    }
}
