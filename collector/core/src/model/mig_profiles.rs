//! The MIG profiles of NVIDIA's cards that can be divided, as data. Names are those of NVIDIA's MIG user guide.

/// Bytes of a hundredth of a GiB.
const CENTI_GIB: u64 = (1 << 30) / 100;

/// A profile: a part of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Its part of the card's SMs, sevenths (of an A30 and an RTX PRO 6000, fourths).
    pub slices: u32,
    /// Memory that programs can use, hundredths of a GiB. Its name tells more than there is. Some are from listings of `nvidia-smi mig
    /// -lgip`. The others are 0.88 of the number in the name, the least part in such a listing.
    centi_gib: u64,
}

impl Profile {
    /// Memory that programs can use, bytes.
    pub fn usable_bytes(&self) -> u64 {
        self.centi_gib * CENTI_GIB
    }
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
    /// Its profiles, the smallest memory first, without the whole card.
    pub profiles: &'static [Profile],
}

const fn profile(name: &'static str, slices: u32, centi_gib: u64) -> Profile {
    Profile { name, slices, centi_gib }
}

const OF_80_GB: &[Profile] = &[
    profile("1g.10gb", 1, 950),
    profile("2g.20gb", 2, 1950),
    profile("3g.40gb", 3, 3925),
    profile("4g.40gb", 4, 3925),
];

/// All cards.
const CARDS: [Card; 9] = [
    Card {
        name: "A30",
        model: "A30",
        gib: (22, 24),
        slices: 4,
        profiles: &[profile("1g.6gb", 1, 528), profile("2g.12gb", 2, 1056)],
    },
    Card {
        name: "A100 40 GB",
        model: "A100",
        gib: (38, 40),
        slices: 7,
        profiles: &[
            profile("1g.5gb", 1, 475),
            profile("2g.10gb", 2, 950),
            profile("3g.20gb", 3, 1950),
            profile("4g.20gb", 4, 1950),
        ],
    },
    Card { name: "A100 80 GB", model: "A100", gib: (78, 80), slices: 7, profiles: OF_80_GB },
    Card { name: "H100 80 GB", model: "H100", gib: (78, 80), slices: 7, profiles: OF_80_GB },
    Card {
        name: "H100 94 GB",
        model: "H100",
        gib: (91, 94),
        slices: 7,
        profiles: &[
            profile("1g.12gb", 1, 1062),
            profile("2g.24gb", 2, 2112),
            profile("3g.47gb", 3, 4136),
            profile("4g.47gb", 4, 4136),
        ],
    },
    Card {
        name: "H100 96 GB",
        model: "GH200",
        gib: (93, 96),
        slices: 7,
        profiles: &[
            profile("1g.12gb", 1, 1075),
            profile("2g.24gb", 2, 2300),
            profile("3g.48gb", 3, 4650),
            profile("4g.48gb", 4, 4650),
        ],
    },
    Card {
        name: "H200",
        model: "H200",
        gib: (138, 141),
        slices: 7,
        profiles: &[
            profile("1g.18gb", 1, 1600),
            profile("2g.35gb", 2, 3080),
            profile("3g.71gb", 3, 6980),
            profile("4g.71gb", 4, 6980),
        ],
    },
    Card {
        name: "B200",
        model: "B200",
        gib: (176, 192),
        slices: 7,
        profiles: &[
            profile("1g.23gb", 1, 2024),
            profile("2g.45gb", 2, 3960),
            profile("3g.90gb", 3, 7920),
            profile("4g.90gb", 4, 7920),
        ],
    },
    Card {
        name: "RTX PRO 6000",
        model: "6000",
        gib: (94, 96),
        slices: 4,
        profiles: &[profile("1g.24gb", 1, 2112), profile("2g.48gb", 2, 4224)],
    },
];

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
        for card in &CARDS {
            assert!(card.profiles.windows(2).all(|pair| pair[0].usable_bytes() <= pair[1].usable_bytes()));
        }
    }
}
