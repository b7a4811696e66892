//! The network of the kernel over a model: two models on a cable find each other by ARP and neighbour discovery, and their queues
//! get the packets all the same.
#![expect(unsafe_code, reason = "opens a context")]

use std::thread;
use std::time::{Duration, Instant};

use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, PdAnswer, context_flag, library};
use pollux_mlx5_abi::kernel::queue_pair::CreateAhAnswer;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_uverbs::abi::memory::{AhAttr, GlobalRoute};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::{Context, Driver, Errno, PdHandle, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

struct Station {
    model: Model,
    context: Context,
    pd: PdHandle,
}

impl Station {
    fn new(model: Model) -> Self {
        let request = ContextRequest {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            flags: context_flag::DEVX,
            max_cqe_version: 1,
            lib_caps: library::UAR_4K,
            ..ContextRequest::default()
        };
        let mut answer = ContextAnswer::new_zeroed();
        let driver_data = Driver::new(request.as_bytes(), answer.as_mut_bytes());
        // SAFETY: nothing is registered and no queue is made.
        let context = unsafe { Context::open(model.open(), driver::MLX5, driver_data) }.expect("a context");
        let mut answer = PdAnswer::new_zeroed();
        let pd = context.alloc_pd(Driver::new(&[], answer.as_mut_bytes())).expect("a domain");
        Self { model, context, pd }
    }

    /// The GID at an index.
    fn gid(&self, index: u32) -> [u8; 16] {
        self.context.query_gid(1, index).expect("an answer").expect("it is there").gid
    }

    /// The MAC to which datagrams to `dgid` go.
    fn resolve(&self, sgid_index: u8, dgid: [u8; 16]) -> Result<[u8; 6], UverbsError> {
        let grh = GlobalRoute { dgid, sgid_index, ..GlobalRoute::default() };
        let attr = AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::default() };
        let mut answer = CreateAhAnswer::new_zeroed();
        let ah = self.context.create_ah(self.pd, &attr, Driver::new(&[], answer.as_mut_bytes()))?;
        self.context.destroy_ah(ah).expect("given back");
        Ok(answer.dmac)
    }

    fn mac(&self) -> [u8; 6] {
        self.model.device().mac()
    }
}

fn pair(stepped: bool) -> (Station, Station) {
    let (one, two) = Cable::pair();
    let build = |name: &str, cable: Cable| {
        let builder = Model::builder(name).plugged(cable);
        let builder = builder.ip("2001:db8::5/64".parse().expect("an address"));
        let last = if name == "one" { "192.0.2.1/24" } else { "192.0.2.2/24" };
        let builder = builder.ip(last.parse().expect("an address"));
        let builder = if stepped { builder.stepped() } else { builder.threaded() };
        Station::new(builder.build().expect("a model"))
    };
    (build("one", one), build("two", two))
}

#[test]
fn models_that_step_by_themselves_find_each_other() {
    let (one, two) = pair(false);
    // Link up on both sides first: a question before that is lost, and asked again.
    let begun = Instant::now();
    assert_eq!(one.resolve(2, two.gid(2)).expect("an answer"), two.mac());
    assert_eq!(two.resolve(2, one.gid(2)).expect("an answer"), one.mac());
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(one.resolve(0, two.gid(0)).expect("no question"), two.mac());
    assert_eq!(one.resolve(2, one.gid(2)).expect("no question"), one.mac());
}

#[test]
fn stepped_models_hear_each_other_before_they_ask() {
    let (one, two) = pair(true);
    let settle = || {
        for _ in 0..4 {
            one.model.settle();
            two.model.settle();
        }
    };
    settle();
    // The first address handle announces its station.
    two.resolve(0, one.gid(0)).expect("no question");
    settle();
    assert_eq!(one.resolve(2, two.gid(2)).expect("it was told"), two.mac());
    // Nobody steps the other one meanwhile.
    let (alone, _) = pair(true);
    let refused =
        alone.resolve(2, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9]).expect_err("nobody");
    assert_eq!(refused.errno(), Some(Errno::ETIMEDOUT));
}

#[test]
fn an_address_without_a_global_route_is_refused_before_anybody_is_asked() {
    let (alone, _other) = pair(true);
    let dgid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9];
    let grh = GlobalRoute { dgid, sgid_index: 2, ..GlobalRoute::default() };
    let create = |is_global| {
        // Room for the MAC, which the driver of the kernel wants.
        let mut mac = [0; 32];
        let attr = AhAttr { grh, is_global, port_num: 1, ..AhAttr::default() };
        let before = alone.model.device().clock_source().now();
        let refused = alone
            .context
            .create_ah(alone.pd, &attr, Driver::new(&[], &mut mac))
            .expect_err("nobody is there");
        // Who asks makes steps, which alone move this clock.
        let asked = alone.model.device().clock_source().now() > before;
        (refused.errno().expect("a refusal"), asked)
    };
    assert_eq!(create(0), (Errno::EINVAL, false));
    assert_eq!(create(1), (Errno::ETIMEDOUT, true));
}

#[test]
fn a_refusal_says_who_it_was() {
    let (alone, _other) = pair(true);
    let nobody = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9];
    let refusal = |index, dgid| alone.resolve(index, dgid).expect_err("refused").to_string();
    let unanswered = refusal(2, nobody);
    assert!(
        unanswered.ends_with("; 192.0.2.9 was asked for; see that it is up and in the subnet of this end"),
        "{unanswered}"
    );
    // A GID index without an entry.
    let checked = refusal(200, nobody);
    let who = "; a check of the kernel refused it, not the firmware; compare it with the limits that `ibv_devinfo -v` tells";
    assert!(checked.ends_with(who), "{checked}");
    alone.model.remove();
    let gone = refusal(2, nobody);
    assert!(
        gone.ends_with("; the device is gone and answers no command; open it again when it is back"),
        "{gone}"
    );
}

#[test]
fn an_answer_comes_from_a_model_that_another_thread_steps() {
    let (one, two) = pair(true);
    for _ in 0..4 {
        one.model.settle();
        two.model.settle();
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                two.model.step();
                thread::yield_now();
            }
        });
        let mut answer = one.resolve(2, two.gid(2));
        // The steps of the two are not in time with each other.
        for _ in 0..200 {
            if answer.is_ok() {
                break;
            }
            answer = one.resolve(2, two.gid(2));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(answer.expect("an answer"), two.mac());
    });
}

#[test]
fn ends_of_a_wire_have_addresses_of_their_own() {
    let folder = std::env::temp_dir().join(format!("pollux-network-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (a, b) = (folder.join("a"), folder.join("b"));
    let build = |own: &std::path::Path, peer: &std::path::Path| {
        let wire = format!("unix:{}:{}", own.display(), peer.display()).parse().expect("a wire");
        Station::new(Model::builder("mlx5_model0").wire(wire).build().expect("a model"))
    };
    let (one, two) = (build(&a, &b), build(&b, &a));
    assert_ne!(one.mac(), two.mac());
    assert_ne!(one.gid(1), two.gid(1));
    assert_eq!(one.resolve(1, two.gid(1)).expect("an answer"), two.mac());
    drop((one, two));
    let _ = std::fs::remove_dir_all(&folder);
}
