//! librdmacm's `mckey`: datagrams to a multicast group that both ends join. Source of options, texts and order: rdma-core
//! `librdmacm/examples/mckey.c`.
//!
//! ```text
//!   sender    joins, waits three seconds, sends to all ──►  receivers   join, attach their queue pairs, count messages
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_bringup::program::{say, tell};
use pollux_cm::{EventKind, Manager, PortSpace};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::Path;

use super::address::{Format, udp_by_number};
use super::manager::{RESOLUTION, next, run as run_program, unexpected};
use super::node::{Messages, Node, Peer, until_done};
use crate::number::within;
use crate::rdma::Failure;

/// How long networks have to learn who is in the group; what the original waits.
const PAUSE: Duration = Duration::from_secs(3);
/// How often a stop is looked for meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// mckey: datagrams to a multicast group. Start receivers, then the sender (-s). Interoperates with librdmacm's mckey.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: rdma-apps/src/cm/mckey.rs.")]
pub struct Options {
    /// Multicast group, such as 239.1.2.3
    #[arg(short = 'm', value_name = "ADDR", value_parser = group)]
    group: IpAddr,
    /// Send to the group, and do not receive
    #[arg(short = 's')]
    sender: bool,
    /// Address to bind to
    #[arg(short = 'b', value_name = "ADDR")]
    bind: Option<String>,
    /// Queue pairs
    #[arg(short = 'c', value_name = "N", default_value = "1", value_parser = |text: &str| within(text, 1, 4096))]
    connections: u64,
    /// Messages of a queue pair
    #[arg(short = 'C', value_name = "N", default_value = "10", value_parser = |text: &str| within(text, 0, 4096))]
    messages: u64,
    /// Message size in bytes, at most the MTU
    #[arg(short = 'S', value_name = "BYTES", default_value = "100", value_parser = |text: &str| within(text, 0, 4096))]
    size: u64,
    /// Port space by its number: 0x0111 (udp)
    #[arg(short = 'p', value_name = "NUMBER", default_value = "0x0111", value_parser = udp_by_number)]
    space: PortSpace,
    /// Join as a member that only sends
    #[arg(short = 'o')]
    sends_only: bool,
    /// Do not hear what the own device sends
    #[arg(short = 'l')]
    no_loopback: bool,
}

/// `-m`.
fn group(text: &str) -> Result<IpAddr, String> {
    let group = text.parse().ok().filter(IpAddr::is_multicast);
    group.ok_or_else(|| "is no multicast address: give one such as 239.1.2.3".into())
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    let example = [("mckey", " -m 239.1.2.3 -b 10.0.0.1"), ("mckey", " -m 239.1.2.3 -b 10.0.0.2 -s")];
    run_program(line, example, move |lcore, manager| {
        let bind = Format::Name.read_given(options.bind.as_deref(), "-b")?;
        tell(format_args!("mckey: starting {}", if options.sender { "client" } else { "server" }));
        tell(format_args!("mckey: joining"));
        let messages = Messages::new(options.messages, options.size, options.sender, !options.sender);
        let mut members = join(lcore, manager, &options, messages, bind)?;
        if !options.sender {
            say(format_args!("mckey: listening on {}", options.group));
        }
        pause(lcore)?;
        if messages.count > 0 {
            if options.sender {
                tell(format_args!("initiating data transfers"));
                members.iter_mut().try_for_each(Member::send_all)?;
            } else {
                tell(format_args!("receiving data transfers"));
            }
            let poll = |members: &mut Vec<Member>| {
                members.iter_mut().try_for_each(|member| member.node.poll(|_| {}))?;
                let count = |node: &Node| if options.sender { node.sent } else { node.received };
                Ok(members.iter().all(|member| count(&member.node) >= messages.count))
            };
            until_done(lcore, &mut members, poll, |_| Ok(()))?;
            tell(format_args!("data transfers complete"));
        }
        members.iter_mut().try_for_each(|member| member.leave(options.group))?;
        drop(members);
        tell(format_args!("test complete"));
        tell(format_args!("return status 0"));
        Ok(())
    })
}

/// A node, and the group that it is in.
struct Member {
    node: Node,
    joined: Option<Joined>,
}

/// A group as its members send to it.
struct Joined {
    path: Path,
    peer: Peer,
    is_attached: bool,
}

/// Nodes that are all in the group.
fn join(
    lcore: &LcoreContext,
    manager: &Manager,
    options: &Options,
    messages: Messages,
    bind: Option<IpAddr>,
) -> Result<Vec<Member>, Failure> {
    let channel = manager.channel()?;
    let peer = SocketAddr::new(options.group, 0);
    let mut waiting = Vec::new();
    for _ in 0..options.connections {
        let id = channel.create_id(options.space)?;
        id.resolve_address(bind.map(|bind| SocketAddr::new(bind, 0)), peer, RESOLUTION)?;
        waiting.push(id);
    }
    let mut members: Vec<Member> = Vec::new();
    while !waiting.is_empty() || members.iter().any(|member| member.joined.is_none()) {
        let event = next(lcore, &channel)?;
        match event.kind {
            EventKind::AddressResolved => {
                let Some(place) = waiting.iter().position(|id| id.number() == event.id) else { continue };
                let node = Node::datagrams(waiting.swap_remove(place), messages, options.no_loopback)?;
                node.id.join_multicast(options.group, options.sends_only)?;
                members.push(Member { node, joined: None });
            }
            EventKind::MulticastJoined { path, qpn, qkey } => {
                let Some(member) = members.iter_mut().find(|member| member.node.id.number() == event.id)
                else {
                    continue;
                };
                tell(format_args!(
                    "mckey: joined dgid: {} mlid 0x{:x} sl {}",
                    std::net::Ipv6Addr::from(path.gid),
                    path.lid,
                    path.service_level
                ));
                let peer = member.node.peer(&path, qpn, qkey)?;
                let is_attached = !options.sends_only;
                if is_attached {
                    member.node.qp.attach_multicast(path.gid, path.lid)?;
                }
                member.joined = Some(Joined { path, peer, is_attached });
            }
            kind => return Err(unexpected(&kind, peer)),
        }
    }
    Ok(members)
}

fn pause(lcore: &LcoreContext) -> Result<(), Failure> {
    let end = Instant::now() + PAUSE;
    while Instant::now() < end {
        if lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

impl Member {
    fn send_all(&mut self) -> Result<(), Failure> {
        self.joined.as_ref().map_or(Ok(()), |joined| self.node.send_all(Some(&joined.peer)))
    }

    fn leave(&mut self, group: IpAddr) -> Result<(), Failure> {
        self.detach()?;
        Ok(self.node.id.leave_multicast(group)?)
    }

    fn detach(&mut self) -> Result<(), Failure> {
        if let Some(Joined { path, .. }) = self.joined.take().filter(|joined| joined.is_attached) {
            self.node.qp.detach_multicast(path.gid, path.lid)?;
        }
        Ok(())
    }
}

impl Drop for Member {
    /// A queue pair that is attached cannot be destroyed.
    fn drop(&mut self) {
        let _error = self.detach();
    }
}
