//! The tree behind the areas of an address space: balanced by height (AVL), and every part of it knows its longest gap.
//!
//! Whatever changes it cuts parts in two and joins them again. The nodes lie in one vector: its growth is fallible (`try_reserve`), which no map of
//! std offers, and leaves alone what the kernel heap reserves for small blocks.

use super::error::MapError;
use super::vma::{Area, AreaKind};
use alloc::vec::Vec;

/// The root of a part, if that is not empty: its place in the vector.
pub(super) type Link = Option<u16>;

/// Most areas of a tree.
pub(super) const MOST: usize = 1 << u16::BITS;

/// An end of a part.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Low,
    High,
}

#[derive(Clone, Debug)]
struct Node {
    area: Area,
    /// What is below the area, and what is above it.
    children: [Link; 2],
    height: u8,
    /// Where the areas of this part start and end.
    bounds: (usize, usize),
    /// The longest gap between two of them.
    gap: usize,
}

/// All parts of one tree. Who changes a part has its new root from then on.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Nodes without an area: each leads to the next by its first child.
    unused: Link,
    len: usize,
}

impl Tree {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            unused: None,
            len: 0,
        }
    }

    /// How many areas all parts have.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Makes room for `more` areas.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), MapError> {
        let missing = more.saturating_sub(self.nodes.len() - self.len);
        let reserved = self.nodes.try_reserve(missing);
        reserved.map_err(|_| MapError::NoMemory)
    }

    /// Of the areas that are `within`, as all from some address on to the other end are, the nearest to `end`.
    pub(super) fn first(
        &self,
        part: Link,
        end: End,
        within: impl Fn(&Area) -> bool,
    ) -> Option<&Area> {
        let (mut next, mut found) = (part, None);
        while let Some(node) = next.map(|node| self.node(node)) {
            let is_within = within(&node.area);
            if is_within {
                found = Some(&node.area);
            }
            next = node.children[if is_within {
                end as usize
            } else {
                1 - end as usize
            }];
        }
        found
    }

    /// Where the highest gap of `len` bytes ends, between `floor` and `top`, which the part lies between or reaches beyond.
    pub(super) fn highest_gap(
        &self,
        part: Link,
        len: usize,
        floor: usize,
        top: usize,
    ) -> Option<usize> {
        if top.saturating_sub(floor) < len {
            return None;
        }
        let Some(node) = part.map(|part| self.node(part)) else {
            return Some(top);
        };
        let (start, end) = node.bounds;
        let around = start.saturating_sub(floor).max(top.saturating_sub(end));
        // What is found to be too short in vain, because `top` is in it, is one part of each height.
        if node.gap.max(around) < len {
            return None;
        }
        let ([low, high], range) = (node.children, node.area.range);
        self.highest_gap(high, len, range.end(), top)
            .or_else(|| self.highest_gap(low, len, floor, top.min(range.start())))
    }

    /// Parts of the areas that start below `addr`, and of the others.
    pub(super) fn split(&mut self, part: Link, addr: usize) -> (Link, Link) {
        let Some(node) = part else {
            return (None, None);
        };
        let [low, high] = self.node(node).children;
        if self.node(node).area.range.start() < addr {
            let (inside, above) = self.split(high, addr);
            (Some(self.join([low, inside], node)), above)
        } else {
            let (below, inside) = self.split(low, addr);
            (below, Some(self.join([inside, high], node)))
        }
    }

    /// One part, of an area, for which there is room, and of those below and above it.
    pub(super) fn put(&mut self, low: Link, area: Area, high: Link) -> Link {
        let node = Node {
            bounds: (area.range.start(), area.range.end()),
            area,
            children: [None; 2],
            height: 1,
            gap: 0,
        };
        let place = match self.unused {
            Some(place) => {
                self.unused = self.node(place).children[0];
                self.nodes[usize::from(place)] = node;
                place
            }
            None => {
                assert!(
                    self.nodes.len() < self.nodes.capacity(),
                    "no room for areas"
                );
                self.nodes.push(node);
                (self.nodes.len() - 1) as u16
            }
        };
        self.len += 1;
        Some(self.join([low, high], place))
    }

    /// Takes the area at an end of the part out.
    pub(super) fn take(&mut self, part: &mut Link, end: End) -> Option<Area> {
        let (node, rest) = self.unlink((*part)?, end as usize);
        *part = rest;
        let area = self.node(node).area.clone();
        self.drop_node(node);
        Some(area)
    }

    /// Drops all areas of the part.
    pub(super) fn clear(&mut self, part: Link) {
        if let Some(node) = part {
            let [low, high] = self.node(node).children;
            self.clear(low);
            self.clear(high);
            self.drop_node(node);
        }
    }

    fn node(&self, node: u16) -> &Node {
        &self.nodes[usize::from(node)]
    }

    fn drop_node(&mut self, place: u16) {
        let node = &mut self.nodes[usize::from(place)];
        // Whatever the area showed is not kept.
        node.area.kind = AreaKind::Anonymous;
        node.children = [self.unused, None];
        self.unused = Some(place);
        self.len -= 1;
    }

    /// The node at an end, and the part without it.
    fn unlink(&mut self, node: u16, end: usize) -> (u16, Link) {
        let mut children = self.node(node).children;
        let Some(child) = children[end] else {
            return (node, children[1 - end]);
        };
        let (found, rest) = self.unlink(child, end);
        children[end] = rest;
        (found, Some(self.join(children, node)))
    }

    /// One part, of `node` and of what is below and above it.
    fn join(&mut self, parts: [Link; 2], node: u16) -> u16 {
        let heights = parts.map(|part| self.height(part));
        // Which is the higher one, and of its children the `outer` one; and which is opposite.
        let outer = usize::from(heights[0] < heights[1]);
        let inner = 1 - outer;
        let pair = |at_outer: Link, at_inner: Link| match outer {
            0 => [at_outer, at_inner],
            _ => [at_inner, at_outer],
        };
        let deep = parts[outer].filter(|_| heights[outer] > heights[inner] + 1);
        let Some(top) = deep else {
            return self.link(parts, node);
        };
        let kept = self.node(top).children;
        // One higher than `kept[inner]` at most.
        let joined = self.join(pair(kept[inner], parts[inner]), node);
        if self.height(Some(joined)) <= self.height(kept[outer]) + 1 {
            return self.link(pair(kept[outer], Some(joined)), top);
        }
        let grown = self.node(joined).children;
        let is_middle = self.height(grown[outer]) > self.height(grown[inner]);
        match grown[outer].filter(|_| is_middle) {
            None => {
                let lower = self.link(pair(kept[outer], grown[outer]), top);
                self.link(pair(Some(lower), grown[inner]), joined)
            }
            Some(middle) => {
                let parted = self.node(middle).children;
                let first = self.link(pair(kept[outer], parted[outer]), top);
                let second = self.link(pair(parted[inner], grown[inner]), joined);
                self.link(pair(Some(first), Some(second)), middle)
            }
        }
    }

    /// Gives `node` these children, whose heights differ by one at most.
    fn link(&mut self, children: [Link; 2], node: u16) -> u16 {
        let range = self.node(node).area.range;
        let [low, high] = children.map(|child| child.map(|child| self.node(child)));
        let gap_below = low.map_or(0, |low| low.gap.max(range.start() - low.bounds.1));
        let gap_above = high.map_or(0, |high| high.gap.max(high.bounds.0 - range.end()));
        let start = low.map_or(range.start(), |low| low.bounds.0);
        let end = high.map_or(range.end(), |high| high.bounds.1);
        let heights = children.map(|child| self.height(child));
        let target = &mut self.nodes[usize::from(node)];
        target.children = children;
        target.height = 1 + heights[0].max(heights[1]);
        target.bounds = (start, end);
        target.gap = gap_below.max(gap_above);
        node
    }

    /// Panics unless the part is balanced.
    #[cfg(not(target_os = "none"))]
    pub(super) fn check(&self, part: Link) {
        let Some(node) = part.map(|part| self.node(part)) else {
            return;
        };
        let [low, high] = node.children.map(|child| self.height(child));
        assert!(low.abs_diff(high) <= 1, "{low} {high}");
        node.children.iter().for_each(|child| self.check(*child));
    }

    fn height(&self, part: Link) -> u8 {
        part.map_or(0, |node| self.node(node).height)
    }
}
