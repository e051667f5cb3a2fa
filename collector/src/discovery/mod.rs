//! Who exists: the layers that find processes. What they find goes to the tree.

pub mod pump;
pub mod records;
pub mod scan;
