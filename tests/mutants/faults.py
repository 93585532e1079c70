"""All seeded faults."""

from tests.mutants import (
    faults_inputs,
    faults_look_up,
    faults_modules,
    faults_positions,
    faults_reference,
    faults_table,
)

FAULTS = (
    *faults_positions.FAULTS,
    *faults_table.FAULTS,
    *faults_look_up.FAULTS,
    *faults_inputs.FAULTS,
    *faults_modules.FAULTS,
    *faults_reference.FAULTS,
)
