//! A door that answers anything: errors, nothing, too little, wild numbers. No answer may do more than make an error.
#![expect(unsafe_code, reason = "the calls of a channel are raw")]

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use pollux_uverbs::abi::write;
use pollux_uverbs::{
    Call, Channel, Context, Driver, Errno, Output, Page, Protection, Route, UverbsError, Value, WriteCall,
};
use proptest::prelude::*;

use crate::every_command::every_command;

/// What the door does with one call.
#[derive(Clone, Debug)]
struct Answer {
    errno: Option<i32>,
    bytes: Vec<u8>,
    skip: bool,
    handle: Option<u32>,
    descriptor: bool,
}

#[derive(Debug)]
struct Wild(Mutex<Vec<Answer>>);

impl Wild {
    fn next(&self) -> Answer {
        let mut script = self.0.lock().expect("lock");
        script.rotate_left(1);
        script[0].clone()
    }
}

fn descriptor(answer: &Answer) -> Option<OwnedFd> {
    // The other end is closed at once: every read of it ends.
    answer.descriptor.then(|| UnixStream::pair().expect("sockets").0.into())
}

fn fill(output: &mut Output<'_>, answer: &Answer) {
    if !answer.skip {
        output.write(&answer.bytes);
    }
}

impl Channel for Wild {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        let answer = self.next();
        for attribute in call.attributes_mut() {
            match &mut attribute.value {
                Value::Out(output) => fill(output, &answer),
                Value::NewHandle(handle) => *handle = answer.handle,
                Value::NewFd(fd) => *fd = descriptor(&answer),
                _ => {}
            }
        }
        answer.errno.map_or(Ok(()), |errno| Err(Errno(errno)))
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, _route: Route) -> Result<(), Errno> {
        let answer = self.next();
        fill(&mut command.core_out, &answer);
        fill(&mut command.driver_out, &answer);
        if write::answers_with_descriptor(command.command) {
            command.fd = descriptor(&answer);
        }
        answer.errno.map_or(Ok(()), |errno| Err(Errno(errno)))
    }

    fn map(&self, _offset: u64, _bytes: usize, _protection: Protection) -> Result<Page, Errno> {
        Err(Errno(self.next().errno.unwrap_or(libc_einval())))
    }

    fn describe(&self) -> String {
        "a wild door".into()
    }
}

fn libc_einval() -> i32 {
    Errno::EINVAL.0
}

fn answer() -> impl Strategy<Value = Answer> {
    let errno = prop_oneof![
        6 => Just(None),
        2 => prop::sample::select(vec![
            Errno::EPROTONOSUPPORT.0, Errno::ENOTTY.0, Errno::EOPNOTSUPP.0, Errno::EINVAL.0, Errno::ENODATA.0,
        ]).prop_map(Some),
        1 => any::<i32>().prop_map(Some),
    ];
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        (0..400usize).prop_map(|count| vec![0xff; count]),
        // Small numbers: counts and lengths that are nearly right.
        prop::collection::vec(0u32..300, 0..80)
            .prop_map(|words| words.iter().flat_map(|word| word.to_ne_bytes()).collect()),
    ];
    (
        errno,
        bytes,
        prop::bool::weighted(0.1),
        prop::option::weighted(0.9, any::<u32>()),
        prop::bool::weighted(0.9),
    )
        .prop_map(|(errno, bytes, skip, handle, descriptor)| Answer {
            errno,
            bytes,
            skip,
            handle,
            descriptor,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Every command gets through any answer, and every error has a line.
    #[test]
    fn no_answer_does_more_than_make_an_error(script in prop::collection::vec(answer(), 1..12)) {
        let channel: Arc<dyn Channel> = Arc::new(Wild(Mutex::new(script)));
        // SAFETY: no device is behind it.
        match unsafe { Context::open(channel, 1, Driver::none()) } {
            Ok(context) => for (name, shown) in every_command(&context) {
                if let Err(error) = shown {
                    let text = error.to_string();
                    prop_assert!(!text.is_empty() && !text.contains('\n'), "{name}: {text:?}");
                }
            },
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

/// One answer to everything, after a context that opens.
fn with(answer: &Answer) -> Context {
    let good = Answer { errno: None, bytes: vec![1; 400], skip: false, handle: Some(1), descriptor: true };
    let wild = Arc::new(Wild(Mutex::new(vec![good])));
    let channel: Arc<dyn Channel> = Arc::<Wild>::clone(&wild);
    // SAFETY: no device is behind it.
    let context = unsafe { Context::open(channel, 1, Driver::none()) }.expect("context");
    *wild.0.lock().expect("lock") = vec![answer.clone()];
    context
}

#[test]
fn a_short_answer_names_the_call_and_the_attribute() {
    let short = Answer { errno: None, bytes: vec![1, 2], skip: false, handle: Some(1), descriptor: true };
    let context = with(&short);
    let error = context.destroy_cq(pollux_uverbs::CqHandle(1)).expect_err("short");
    assert_eq!(
        error.to_string(),
        "CQ/DESTROY: RESP has 2 bytes, at least 8 are needed; update the kernel, or its driver of the device"
    );
    let error = context.alloc_pd(Driver::none()).expect_err("short");
    assert_eq!(
        error.to_string(),
        "ALLOC_PD: answer has 2 bytes, at least 4 are needed; update the kernel, or its driver of the device"
    );
    let error = context.query_port(1).expect_err("short");
    assert_eq!(
        error.to_string(),
        "DEVICE/QUERY_PORT: RESP has 2 bytes, at least 40 are needed; update the kernel, or its driver of the device"
    );
    let error =
        context.read_counters(pollux_uverbs::CountersHandle(1), false, &mut [0; 2]).expect_err("short");
    assert_eq!(
        error.to_string(),
        "COUNTERS/READ: BUFF has 2 bytes, at least 16 are needed; update the kernel, or its driver of the device"
    );
}

#[test]
fn an_answer_that_was_not_written_is_missed() {
    let silent = Answer { errno: None, bytes: Vec::new(), skip: true, handle: None, descriptor: false };
    let context = with(&silent);
    let text = |error: UverbsError| error.to_string();
    let error = context.destroy_cq(pollux_uverbs::CqHandle(1)).expect_err("silent");
    assert_eq!(
        text(error),
        "CQ/DESTROY: succeeded without writing RESP; update the kernel, or its driver of the device"
    );
    let error = context.alloc_pd(Driver::none()).expect_err("silent");
    assert_eq!(
        text(error),
        "ALLOC_PD: succeeded without writing answer; update the kernel, or its driver of the device"
    );
    let error = context.create_counters(|_| {}).expect_err("silent");
    assert_eq!(
        text(error),
        "COUNTERS/CREATE: succeeded without writing HANDLE; update the kernel, or its driver of the device"
    );
    let error = context
        .create_cq(&crate::every_command::cq_request(), Driver::new(&[], &mut [0; 8]))
        .expect_err("silent");
    assert_eq!(
        text(error),
        "CQ/CREATE: succeeded without writing UHW_OUT; update the kernel, or its driver of the device"
    );
    let error =
        context.create_ah(crate::every_command::PD, &Default::default(), Driver::none()).expect_err("silent");
    assert_eq!(
        text(error),
        "CREATE_AH: succeeded without writing answer; update the kernel, or its driver of the device"
    );
}

#[test]
fn a_response_length_that_is_too_small_is_an_error() {
    let zero = Answer { errno: None, bytes: vec![0; 400], skip: false, handle: Some(1), descriptor: true };
    let context = with(&zero);
    let error = context.query_device(Driver::none()).expect_err("nothing was filled");
    assert_eq!(
        error.to_string(),
        "EX_QUERY_DEVICE: answer (response_length) has 0 bytes, at least 176 are needed; update the kernel, or its driver of the device"
    );
}

#[test]
fn more_gids_than_there_was_room_for_are_refused() {
    let many = Answer { errno: None, bytes: vec![1; 400], skip: false, handle: Some(1), descriptor: true };
    let error = with(&many).query_gid_table().expect_err("too many");
    assert!(error.to_string().starts_with("DEVICE/QUERY_GID_TABLE: RESP_NUM_ENTRIES is 0x101"), "{error}");
}
