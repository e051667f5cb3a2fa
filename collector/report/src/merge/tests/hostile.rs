//! Reports with forged figures: nothing panics, and the figures of other nodes stay as they are.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{merged, of_node};
use crate::model::report::Report;
use gpu_track_core::fixtures;
use gpu_track_core::random_seed::seeded;

/// Counts the numbers in a value, and puts another one in the place of some.
fn forge(value: &mut Value, at: &mut usize, forged: &[(usize, Value)]) {
    match value {
        Value::Number(_) => {
            if let Some((_, other)) = forged.iter().find(|(place, _)| place == at) {
                *value = other.clone();
            }
            *at += 1;
        }
        Value::Array(list) => list.iter_mut().for_each(|value| forge(value, at, forged)),
        Value::Object(object) => object.values_mut().for_each(|value| forge(value, at, forged)),
        _ => {}
    }
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(u32::MAX)),
        Just(json!(0)),
        Just(json!(1e308)),
        Just(json!(-1e308)),
        Just(json!(5e-324)),
        any::<u64>().prop_map(|number| json!(number)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..seeded() })]

    // Requirement: NODE-5
    #[test]
    fn forged_figures_do_no_harm_to_others(
        forged in prop::collection::vec((0_usize..2000, number()), 1..40),
        stretch in prop::option::of((0_usize..40, number())),
        rank in 0_usize..12,
    ) {
        let (_, sample) = fixtures::nodes().swap_remove(rank);
        let mut value = serde_json::to_value(&sample).unwrap();
        forge(&mut value, &mut 0, &forged);
        if let Some((at, number)) = stretch {
            value["series"]["start_s"][at] = number.clone();
            value["wall_s"] = number;
        }
        // What no report can have is refused when it is read.
        let Ok(report) = serde_json::from_value::<Report>(value) else { return Ok(()) };
        let others = [of_node("x1"), of_node("x2")];
        let alone = merged(&others);
        let together = merged(&[others[0].clone(), report, others[1].clone()]);
        let figures = |report: &Report| -> Vec<_> {
            let known = report.nodes.iter().filter(|node| node.node.starts_with('x'));
            known.map(|node| (node.node.clone(), node.ram.clone(), node.cpu_s, node.state)).collect()
        };
        prop_assert_eq!(figures(&together), figures(&alone));
        prop_assert_eq!(figures(&together).len(), 2);
    }
}
