//! The integration tests of tidegate-regulate: one program, a module for each subject.

mod resource;
