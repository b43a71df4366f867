/// A partition's place in the tree over a site's partitions: partition 0 is the root, and the children of n are 8n+1 .. 8n+8.
///
/// Each partition costs two messages per round, however many partitions there are. If every partition told every other one, the number of messages
/// would be the square of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    me: u16,
    partitions: u16,
}

const FANOUT: u32 = 8;

impl Tree {
    /// The place of `me` among this number of partitions.
    pub fn new(me: u16, partitions: u16) -> Tree {
        Tree { me, partitions }
    }

    /// The partition that it reports to; `None` at the root.
    pub fn parent(self) -> Option<u16> {
        let above = u32::from(self.me).checked_sub(1)? / FANOUT;
        Some(above as u16)
    }

    /// The partitions that report to it.
    pub fn children(self) -> impl Iterator<Item = u16> {
        let first = u32::from(self.me) * FANOUT + 1;
        let end = (first + FANOUT).min(u32::from(self.partitions));
        (first..end).map(|child| child as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_reports_to_the_parent_of_whom_it_is_a_child() {
        for partitions in [1, 2, 8, 9, 10, 73, 74, 16_384] {
            for me in 0..partitions {
                match Tree::new(me, partitions).parent() {
                    None => assert_eq!(me, 0, "only partition 0 reports to nobody"),
                    Some(parent) => {
                        assert!(parent < me, "a tree has no circles");
                        let mut children = Tree::new(parent, partitions).children();
                        assert!(children.any(|child| child == me), "{me} is no child of {parent}");
                    }
                }
            }
            let children = (0..partitions).flat_map(|me| Tree::new(me, partitions).children());
            assert_eq!(children.count(), usize::from(partitions) - 1);
        }
    }
}
