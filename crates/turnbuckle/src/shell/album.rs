//! `album`: shows on the running cluster what a causal keyspace is for.
//!
//! Alice, at the first site, posts a photo. Bob, at the second, sees it and comments. Carol reads at the third. Meanwhile the way from the first site
//! to Carol's is slow: Bob's comment arrives before the photo that it is about. An eventual keyspace shows the comment without the photo. A causal
//! keyspace shows the comment once the photo is there.
use super::{ANSWER_TIME, Shell, words::answer_in_words};
use crate::connection::Connection;
use bytes::Bytes;
use std::time::{Duration, Instant};
use turnbuckle_resp::Value;
use turnbuckle_server::admin::{AdminClient, SetDelay};
use turnbuckle_workload::split_receipt;

/// How long a message takes from Alice's site to Carol's during the story.
const SLOW: &str = "1500ms";

/// How long the story waits for a value to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a reader waits between two reads.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The people of the story with their sites, in the order of the sites, and the lines that are shown.
struct Story {
    people: Vec<(String, Connection)>,
    lines: Vec<String>,
}

impl Shell {
    /// Plays the story in an eventual and in a causal keyspace.
    pub(super) fn album(&mut self) -> Result<String, String> {
        if self.sites.len() < 3 {
            return Err("the album needs three sites; expected a demo with --sites 3 or more".to_string());
        }
        let (first, third) = (self.sites[0].name.clone(), self.sites[2].name.clone());
        let view = self.ask_admin(AdminClient::wan)?;
        let way = view
            .links
            .into_iter()
            .find(|link| link.from == first && link.to == third);
        let before = way.map(|link| link.delay).ok_or("the demo knows no such link")?;
        self.set_way(&first, &third, SLOW)?;
        let played = self.play_both(&first, &third);
        self.set_way(&first, &third, &before)?;
        let mut text = played?;
        text += &format!("\nThe way from {first} to {third} takes {before} again.");
        Ok(text)
    }

    fn set_way(&self, from: &str, to: &str, delay: &str) -> Result<(), String> {
        let delay = SetDelay {
            from: from.to_string(),
            to: to.to_string(),
            delay: delay.to_string(),
            both: false,
        };
        self.ask_admin(|admin| admin.set_delay(&delay)).map(drop)
    }

    fn play_both(&self, first: &str, third: &str) -> Result<String, String> {
        let mut text = format!(
            "The way from {first} to {third} takes {SLOW} for this, so that a comment is faster than its photo."
        );
        for keyspace in ["eventual", "causal"] {
            let people = (0..3)
                .map(|place| {
                    let keyspace = Bytes::from_static(keyspace.as_bytes());
                    let opened = self.open(place, Some(keyspace));
                    let opened = opened.map_err(|trouble| trouble.to_string())?;
                    Ok((self.sites[place].name.clone(), opened))
                })
                .collect::<Result<Vec<_>, String>>()?;
            let mut story = Story {
                people,
                lines: Vec::new(),
            };
            let ending = self.runtime.block_on(story.play())?;
            text += &format!("\nkeyspace {keyspace}\n{}\n  {ending}", story.lines.join("\n"));
        }
        Ok(text)
    }
}

impl Story {
    /// Plays the story. Returns its result in words.
    async fn play(&mut self) -> Result<String, String> {
        let number = self.next_number().await?;
        let (photo, comment) = (format!("photo:{number}"), format!("comment:{number}"));
        self.once(0, &["SET", &photo, "sunset"]).await?;
        self.until_there(1, &photo).await?;
        self.once(1, &["SET", &comment, "lovely"]).await?;
        self.until_there(2, &comment).await?;
        let seen = self.once(2, &["GET", &photo]).await?;
        Ok(match seen {
            Value::Null => "A comment was shown without its photo.".to_string(),
            _ => "The comment was shown once its photo was there.".to_string(),
        })
    }

    /// The number of the first album that no site shows. Others were played before, or are in the demo's directory.
    async fn next_number(&mut self) -> Result<u64, String> {
        let (mut number, mut place) = (1, 0);
        while place < self.people.len() {
            let mut is_taken = false;
            for key in [format!("photo:{number}"), format!("comment:{number}")] {
                is_taken |= self.ask(place, &["GET", &key]).await? != Value::Null;
            }
            (number, place) = match is_taken {
                true => (number + 1, 0),
                false => (number, place + 1),
            };
        }
        Ok(number)
    }

    /// Carries out one command, and adds a line about it.
    async fn once(&mut self, place: usize, command: &[&str]) -> Result<Value, String> {
        let answer = self.ask(place, command).await?;
        self.tell(place, command, &answer, "");
        Ok(answer)
    }

    /// Reads until the key has a value. Adds a line about the last read.
    async fn until_there(&mut self, place: usize, key: &str) -> Result<(), String> {
        let begun = Instant::now();
        let mut reads = 0;
        loop {
            let answer = self.ask(place, &["GET", key]).await?;
            let ms = begun.elapsed().as_millis();
            if answer != Value::Null {
                let when = match reads {
                    0 => String::new(),
                    _ => format!("after {ms} ms"),
                };
                self.tell(place, &["GET", key], &answer, &when);
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "{key} did not reach site {} within {} s; is a link cut?",
                    self.people[place].0,
                    PATIENCE.as_secs()
                ));
            }
            reads += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn ask(&mut self, place: usize, command: &[&str]) -> Result<Value, String> {
        let (site, connection) = &mut self.people[place];
        let reply = connection.call_within(command, ANSWER_TIME).await;
        match split_receipt(reply.map_err(|trouble| format!("site {site}: {trouble}"))?).0 {
            Value::Error(why) => Err(format!("site {site}: {}", String::from_utf8_lossy(&why))),
            answer => Ok(answer),
        }
    }

    fn tell(&mut self, place: usize, command: &[&str], answer: &Value, when: &str) {
        let line = format!(
            "  {}> {:<24} {:<9} {when}",
            self.people[place].0,
            command.join(" "),
            answer_in_words(answer)
        );
        self.lines.push(line.trim_end().to_string());
    }
}
