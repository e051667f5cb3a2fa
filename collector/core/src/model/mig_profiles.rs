//! The MIG profiles of NVIDIA's cards that can be divided, as data. Names are those of NVIDIA's MIG user guide.

/// Bytes of a hundredth of a GiB.
const CENTI_GIB: u64 = (1 << 30) / 100;

/// A profile: a part of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Its part of the card's SMs, sevenths (of an A30 and an RTX PRO 6000, fourths): the number with which its name begins.
    pub slices: u32,
    /// Memory that programs can use, bytes.
    pub usable_bytes: u64,
}

/// A card that can be divided.
#[derive(Debug, Clone, Copy)]
pub struct Card {
    /// What people call it.
    pub name: &'static str,
    /// A word of its product name.
    model: &'static str,
    /// Its memory as drivers tell it, whole GiB: the least and the most.
    gib: (u64, u64),
    /// Of how many slices it is.
    pub slices: u32,
    /// Its profiles, without the whole card: the smallest memory first, and of equal ones the fewest SMs. Each has the memory that programs
    /// can use, hundredths of a GiB, which is less than its name tells. Some are from listings of `nvidia-smi mig -lgip`. The others are
    /// 0.88 of the number in the name, the least part in such a listing.
    profiles: &'static str,
}

const fn card_of(
    name: &'static str,
    model: &'static str,
    gib: (u64, u64),
    slices: u32,
    profiles: &'static str,
) -> Card {
    Card { name, model, gib, slices, profiles }
}

/// All cards.
const CARDS: [Card; 9] = [
    card_of("A30", "A30", (22, 24), 4, "1g.6gb 528, 2g.12gb 1056"),
    card_of(
        "A100 40 GB",
        "A100",
        (38, 40),
        7,
        "1g.5gb 475, 1g.10gb 950, 2g.10gb 950, 3g.20gb 1950, 4g.20gb 1950",
    ),
    card_of("A100 80 GB", "A100", (78, 80), 7, OF_80_GB),
    card_of("H100 80 GB", "H100", (78, 80), 7, OF_80_GB),
    card_of(
        "H100 94 GB",
        "H100",
        (91, 94),
        7,
        "1g.12gb 1062, 1g.24gb 2112, 2g.24gb 2112, 3g.47gb 4136, 4g.47gb 4136",
    ),
    card_of(
        "H100 96 GB",
        "GH200",
        (93, 96),
        7,
        "1g.12gb 1075, 1g.24gb 2300, 2g.24gb 2300, 3g.48gb 4650, 4g.48gb 4650",
    ),
    card_of(
        "H200",
        "H200",
        (138, 141),
        7,
        "1g.18gb 1600, 1g.35gb 3080, 2g.35gb 3080, 3g.71gb 6980, 4g.71gb 6980",
    ),
    card_of(
        "B200",
        "B200",
        (176, 192),
        7,
        "1g.23gb 2024, 1g.45gb 3960, 2g.45gb 3960, 3g.90gb 7920, 4g.90gb 7920",
    ),
    card_of("RTX PRO 6000", "6000", (94, 96), 4, "1g.24gb 2112, 2g.48gb 4224"),
];

const OF_80_GB: &str = "1g.10gb 950, 1g.20gb 1950, 2g.20gb 1950, 3g.40gb 3925, 4g.40gb 3925";

impl Card {
    /// Its profiles, the smallest memory first, and of equal ones the fewest SMs.
    pub fn profiles(&self) -> impl Iterator<Item = Profile> {
        self.profiles.split(", ").filter_map(|row| {
            let (name, centi_gib) = row.split_once(' ')?;
            let slices = name.split_once('g')?.0.parse().ok()?;
            Some(Profile { name, slices, usable_bytes: centi_gib.parse::<u64>().ok()? * CENTI_GIB })
        })
    }
}

/// Finds the card with this product name and memory. `None`: it is none of these, or cannot be divided.
pub fn card(product: &str, memory_bytes: u64) -> Option<&'static Card> {
    let gib = memory_bytes.div_ceil(1 << 30);
    let is_of_model = |card: &&Card| {
        let mut words = product.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(|word| word == card.model) && (card.model != "6000" || product.contains("RTX PRO"))
    };
    CARDS.iter().filter(is_of_model).find(|card| (card.gib.0..=card.gib.1).contains(&gib))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_is_found_by_its_name_and_memory() {
        let found = |product, mib: u64| card(product, mib << 20).map(|card| card.name);
        assert_eq!(found("NVIDIA A100-SXM4-40GB", 40_960), Some("A100 40 GB"));
        assert_eq!(found("NVIDIA A100 80GB PCIe", 81_920), Some("A100 80 GB"));
        assert_eq!(found("NVIDIA H100 80GB HBM3", 81_559), Some("H100 80 GB"));
        assert_eq!(found("NVIDIA H100 NVL", 95_830), Some("H100 94 GB"));
        assert_eq!(found("NVIDIA GH200 480GB", 97_871), Some("H100 96 GB"));
        assert_eq!(found("NVIDIA H200", 143_771), Some("H200"));
        assert_eq!(found("NVIDIA B200", 183_359), Some("B200"));
        assert_eq!(found("NVIDIA A30", 24_576), Some("A30"));
        assert_eq!(found("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887), Some("RTX PRO 6000"));
        assert_eq!(found("NVIDIA RTX 6000 Ada Generation", 49_140), None);
        assert_eq!(found("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864), None, "a part of one");
    }

    #[test]
    fn profiles_of_all_cards_are_known_the_smallest_first() {
        for card in &CARDS {
            let profiles: Vec<_> = card.profiles().collect();
            assert_eq!(profiles.len(), card.profiles.split(',').count(), "{}", card.name);
            assert!(
                profiles.iter().all(|profile| (1..=card.slices).contains(&profile.slices)),
                "{}",
                card.name
            );
            assert!(
                profiles.is_sorted_by_key(|profile| (profile.usable_bytes, profile.slices)),
                "{}",
                card.name
            );
        }
        let a100 = CARDS[1].profiles().next();
        assert_eq!(a100, Some(Profile { name: "1g.5gb", slices: 1, usable_bytes: 475 * CENTI_GIB }));
    }
}
