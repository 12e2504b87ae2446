//! Cases by hand, and mistakes that the emulated processor must punish: a test that could not fail would prove nothing.
