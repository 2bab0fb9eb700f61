//! In which order things are measured that are compared.

/// `rounds` rounds over `items`, every other one backwards: A B B A A B … A machine that gets slower or
/// faster over time then does not favour one of them.
pub fn interleaved<T: Copy>(items: &[T], rounds: usize) -> Vec<(usize, T)> {
    let round = |number: usize| -> Vec<(usize, T)> {
        let forwards = items.iter().map(|item| (number, *item));
        if number.is_multiple_of(2) {
            forwards.collect()
        } else {
            forwards.rev().collect()
        }
    };
    (0..rounds).flat_map(round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_go_forth_and_back() {
        let order: String = interleaved(&['A', 'B'], 4)
            .into_iter()
            .map(|(_, c)| c)
            .collect();
        assert_eq!(order, "ABBAABBA");
        let rounds: Vec<usize> = interleaved(&['A', 'B'], 2)
            .into_iter()
            .map(|(n, _)| n)
            .collect();
        assert_eq!(rounds, [0, 0, 1, 1]);
        assert!(interleaved(&['A'], 0).is_empty());
    }
}
