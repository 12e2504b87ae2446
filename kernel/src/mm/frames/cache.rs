//! Per-CPU caches in front of the pool: the page-fault path takes no lock that another CPU wants.
//!
//! Each cache is behind its own lock, which only its CPU takes, so it is free in practice. A failed
//! `try_lock` (another CPU steals from it because memory is short, or the thread has moved since it took the number of its
//! CPU) goes to the pool instead.
//! Not for interrupt handlers: the pool's lock does not disable interrupts.

use super::chain::FrameChain;
use super::frame::Frame;
use super::pool::POOL;
use crate::arch::percpu::cpu_id;
use crate::cpus::MAX_CPUS;
use crate::mm::{limit, witness};
use crate::sync::Mutex;

/// Frames moved between cache and pool at once.
const REFILL: usize = limit(64, 4);
/// A cache above this gives half back. Large enough that a loop over 32 pages never leaves it.
const CACHE_LIMIT: usize = 2 * REFILL;

/// On its own cache lines, so that CPUs do not share any.
#[repr(align(128))]
struct Cache(Mutex<FrameChain>);

static CACHES: [Cache; MAX_CPUS] = [const { Cache(Mutex::new(FrameChain::new())) }; MAX_CPUS];

fn own_cache() -> &'static Mutex<FrameChain> {
    &CACHES[cpu_id().index()].0
}

/// A frame with arbitrary contents, or `None` when memory is exhausted.
pub fn alloc() -> Option<Frame> {
    let Some(mut cache) = own_cache().try_lock() else {
        return POOL.lock().take(1).pop();
    };
    if let Some(frame) = cache.pop() {
        return Some(frame);
    }
    *cache = POOL.lock().take(REFILL);
    let frame = cache.pop();
    drop(cache);
    frame.or_else(steal)
}

/// A frame full of zeros, or `None` when memory is exhausted.
pub fn alloc_zeroed() -> Option<Frame> {
    let mut frame = alloc()?;
    frame.clear();
    Some(frame)
}

/// Gives a frame back. No CPU may still be able to translate to it (I5).
pub fn free(frame: Frame) {
    let mut chain = FrameChain::new();
    chain.push(frame);
    free_chain(chain);
}

/// Gives many frames back. No CPU may still be able to translate to any (I5).
pub fn free_chain(chain: FrameChain) {
    witness::freeing(&chain);
    let Some(mut cache) = own_cache().try_lock() else {
        return POOL.lock().give(chain);
    };
    cache.append(chain);
    if cache.len() > CACHE_LIMIT {
        let kept = cache.split_front(REFILL);
        let surplus = core::mem::replace(&mut *cache, kept);
        POOL.lock().give(surplus);
    }
}

/// Gives all of this CPU's cache back: it goes offline.
#[allow(dead_code, reason = "not for the tests on the host")]
pub fn drain() {
    let frames = core::mem::take(&mut *own_cache().lock());
    POOL.lock().give(frames);
}

/// Free frames, in the pool and in all caches. A moment's value while other CPUs work.
pub fn free_count() -> usize {
    let cached: usize = CACHES.iter().map(|cache| cache.0.lock().len()).sum();
    cached + POOL.lock().len()
}

/// The pool is empty: a frame from the cache of another CPU.
fn steal() -> Option<Frame> {
    CACHES.iter().find_map(|cache| cache.0.lock().pop())
}

/// Frees to the cache of a given CPU, which makes the frames the next ones it takes.
#[cfg(feature = "breaks")]
pub fn donate(cpu: shootdown::CpuId, chain: FrameChain) {
    witness::freeing(&chain);
    CACHES[cpu.index()].0.lock().append(chain);
}
