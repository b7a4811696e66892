//! Every interleaving of a timer's handle with its lcore, explored by loom: `cargo xtask loom`.
//!
//! What the callback and the handle's thread both use is a tracked cell.

use super::Shared;
use crate::timer::Cancelled;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use pollux_atomic::explore;

struct Scene {
    timer: Shared,
    data: UnsafeCell<u32>,
}

fn scene() -> Arc<Scene> {
    Arc::new(Scene { timer: Shared::new(Box::new(|_| {})), data: UnsafeCell::new(0) })
}

/// The lcore: runs what is planned, once.
fn run_once(scene: &Scene) {
    if let Some((version, Some(_))) = scene.timer.plan()
        && scene.timer.begin(version)
    {
        scene.data.with_mut(drop);
        assert!(!scene.timer.finish(version, false));
    }
}

fn spawn_on(scene: &Arc<Scene>, run: impl FnOnce(&Scene) + 'static) -> thread::JoinHandle<()> {
    let scene = Arc::clone(scene);
    thread::spawn(move || run(&scene))
}

/// `cancel_and_wait`.
#[test]
fn a_run_that_was_waited_for_is_over() {
    explore(4, || {
        let scene = scene();
        scene.data.with_mut(drop);
        scene.timer.arm(7, 0);
        let lcore = spawn_on(&scene, run_once);
        scene.timer.cancel();
        while scene.timer.is_running() {
            thread::yield_now();
        }
        scene.data.with_mut(drop);
        lcore.join().unwrap();
    });
}

/// A cancel that comes when the run is over does not wait for it.
#[test]
fn a_run_that_was_over_is_seen() {
    explore(4, || {
        let scene = scene();
        scene.timer.arm(7, 0);
        let lcore = spawn_on(&scene, run_once);
        // Made last, and so run last by loom: it sees any of the lcore's stores.
        let handle = spawn_on(&scene, |scene| {
            if scene.timer.cancel() != Cancelled::Running {
                scene.data.with_mut(drop);
            }
        });
        lcore.join().unwrap();
        handle.join().unwrap();
    });
}

/// A plan is one of those that were made, and brings what its maker did before; not the deadline of one and the period of another.
#[test]
fn a_plan_is_read_whole() {
    explore(4, || {
        let scene = scene();
        scene.timer.arm(1, 1);
        let lcore = spawn_on(&scene, |scene| {
            for _ in 0..2 {
                if let Some((_, Some((deadline, period)))) = scene.timer.plan() {
                    assert_eq!(deadline, period);
                    if deadline == 2 {
                        scene.data.with(drop);
                    }
                }
            }
        });
        scene.data.with_mut(drop);
        scene.timer.arm(2, 2);
        lcore.join().unwrap();
    });
}
