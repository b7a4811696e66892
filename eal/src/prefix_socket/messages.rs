//! A service of messages: each that a client sends is answered by one, or by none.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::{Gone, Service};

/// After this a client that does not read its answer makes room for one that waits to be accepted.
pub(crate) const UNREAD_MAX: Duration = Duration::from_secs(1);

/// What messages are answered with.
pub trait Answers {
    /// Clients at a time.
    const CLIENTS_MAX: usize;
    /// Bytes of a message that are looked at.
    const MESSAGE_MAX: usize;

    /// What a client is told before it has asked; nothing, unless this is written.
    fn greeting(&self) -> Option<String> {
        None
    }

    /// The answer to a message that had so many bytes, of which these are the first [`MESSAGE_MAX`](Self::MESSAGE_MAX); none: there is none.
    /// All clients wait for it. One that is longer than a socket's buffer ends the client's connection.
    fn answer(&mut self, message: &[u8], bytes: usize) -> Option<String>;

    /// Says that nobody can be accepted for a while, for want of file descriptors.
    fn say_no_files(&self);
}

/// The service that answers so, one answer at a time: who does not read its answer is not read from, and holds nobody up.
///
/// Called by `telemetry` here and by programs with commands of their own; [`serve`](super::serve) runs it.
#[derive(Debug)]
pub struct Messages<A> {
    answers: A,
    message: Vec<u8>,
}

/// A client of [`Messages`].
#[derive(Debug)]
pub struct MessageClient {
    socket: OwnedFd,
    /// An answer that the socket had no room for, and since when.
    unsent: Option<(String, Instant)>,
}

impl MessageClient {
    fn send(&mut self, answer: String) -> Result<(), Gone> {
        match rustix::net::send(&self.socket, answer.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            // A message goes as a whole or not at all.
            Ok(_) => self.unsent = None,
            Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {
                let since = self.unsent.take().map_or_else(Instant::now, |(_, since)| since);
                self.unsent = Some((answer, since));
            }
            Err(_) => return Err(Gone),
        }
        Ok(())
    }
}

impl<A: Answers> Messages<A> {
    /// Nobody is connected yet.
    #[must_use]
    pub fn new(answers: A) -> Self {
        Self { answers, message: vec![0; A::MESSAGE_MAX] }
    }

    /// What answered, once nobody is served any more.
    #[must_use]
    pub fn into_inner(self) -> A {
        self.answers
    }
}

impl<A: Answers> Service for Messages<A> {
    type Client = MessageClient;
    const CLIENTS_MAX: usize = A::CLIENTS_MAX;

    fn welcome(&mut self, socket: OwnedFd) -> Result<MessageClient, Gone> {
        let mut client = MessageClient { socket, unsent: None };
        self.answers.greeting().map_or(Ok(()), |greeting| client.send(greeting))?;
        Ok(client)
    }

    fn waits_for(client: &MessageClient) -> (BorrowedFd<'_>, PollFlags) {
        (client.socket.as_fd(), if client.unsent.is_some() { PollFlags::OUT } else { PollFlags::IN })
    }

    /// One message, or one more try to send an answer.
    fn step(&mut self, client: &mut MessageClient) -> Result<(), Gone> {
        if let Some((unsent, since)) = client.unsent.take() {
            client.unsent = Some((String::new(), since));
            return client.send(unsent);
        }
        // With TRUNC the kernel tells how long the message was, of which it drops what has no room.
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        match rustix::net::recv(&client.socket, &mut self.message[..], flags) {
            Ok((_, 0)) => Err(Gone),
            Ok((kept, bytes)) => match self.answers.answer(&self.message[..kept], bytes) {
                Some(answer) => client.send(answer),
                None => Ok(()),
            },
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    fn gives_way(client: &MessageClient) -> bool {
        client.unsent.as_ref().is_some_and(|(_, since)| since.elapsed() > UNREAD_MAX)
    }

    fn say_no_files(&self) {
        self.answers.say_no_files();
    }
}
