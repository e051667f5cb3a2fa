//! Short names of GPUs, by which views and lines of GPUs tell them apart: `GPU3`, and `MIG3.0` for the first instance of that GPU.

use std::collections::BTreeSet;

/// What a name is made of.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// Id of the GPU.
    pub id: &'a str,
    /// The driver's number of it.
    pub index: Option<u64>,
    /// Id of the GPU that it is a part of.
    pub parent: Option<&'a str>,
}

/// The names of these GPUs, in their order. A GPU has the driver's number, as a partition of AMD's has. If two have the same one, as those of
/// two drivers can, or one has none, GPUs are counted in their order. Instances of MIG, which have no number, are counted by their GPU, and
/// those whose GPU is not here together.
pub fn short_names(gpus: &[Named]) -> Vec<String> {
    let parent = |gpu: &Named| gpus.iter().position(|other| Some(other.id) == gpu.parent);
    let is_instance = |gpu: &&Named| gpu.parent.is_some() && gpu.index.is_none();
    let is_other = |gpu: &&Named| !is_instance(gpu);
    let others = || gpus.iter().filter(is_other);
    let indices: BTreeSet<u64> = others().filter_map(|gpu| gpu.index).collect();
    let has_numbers = indices.len() == others().count();
    let number = |place: usize| match gpus[place].index.filter(|_| has_numbers) {
        Some(index) => index,
        None => gpus[..place].iter().filter(is_other).count() as u64,
    };
    let name = |(place, gpu): (usize, &Named)| {
        if is_other(&gpu) {
            return format!("GPU{}", number(place));
        }
        let of = parent(gpu);
        let before = gpus[..place].iter().filter(is_instance).filter(|other| parent(other) == of).count();
        match of {
            Some(of) => format!("MIG{}.{before}", number(of)),
            None => format!("MIG{before}"),
        }
    };
    gpus.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(gpus: &[(&'static str, Option<u64>, Option<&'static str>)]) -> Vec<String> {
        let named = |(id, index, parent): &(&'static str, _, _)| Named { id, index: *index, parent: *parent };
        short_names(&gpus.iter().map(named).collect::<Vec<_>>())
    }

    #[test]
    fn each_gpu_has_a_name_of_its_own() {
        let (a, b) = (("a", Some(0), None), ("b", Some(5), None));
        let part = |id, parent| (id, None, Some(parent));
        let all =
            [a, part("m", "a"), part("n", "a"), b, part("o", "b"), part("p", "lost"), part("q", "lost")];
        assert_eq!(names(&all), ["GPU0", "MIG0.0", "MIG0.1", "GPU5", "MIG5.0", "MIG0", "MIG1"]);
        assert_eq!(names(&[a, ("c", Some(0), None), b]), ["GPU0", "GPU1", "GPU2"], "two drivers");
        assert_eq!(names(&[b, ("d", None, None)]), ["GPU0", "GPU1"]);
        assert_eq!(names(&[a, ("card/0", Some(1), Some("card"))]), ["GPU0", "GPU1"], "a partition");
    }
}
