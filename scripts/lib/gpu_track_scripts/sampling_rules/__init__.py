"""What each rule of SamplingPolicy buys: RAM peaks with the rule and without it."""
