package compare

// The text around the tables of docs/diff-validation.md.

const validationHead = `# How reliable the verdicts of a comparison are

Measured by simulation: ` + "`make validate-diff`" + ` writes this file again, with the
same numbers (the generator is seeded). A simulated comparison goes the whole way
through the code that compares runs: a matrix of 40 decode and 7 prefill cells, TTFT
of the decode cells, three metrics that decide, and noise profiles made by the code
that makes them. Each row rests on %[1]d comparisons of equal code and %[2]d of each
kind with a difference (rows with too few launches: %[3]d and %[4]d).

The worlds, as standard deviations between launches: **quiet**: 0.4 %% for a whole
launch, 0.2 to 0.8 %% for a cell beside that; **usual**: 1.0 %% and 0.4 to 1.6 %%;
**heavy tails**: usual, by Student's t with 4 degrees of freedom; **bimodal**: usual,
and 15 %% of launches 20 %% slower in everything; **speculative**: quiet, and decode cells
of 1 and 2 requests with 12 %%. TTFT is three times as noisy (not where it is 12 %%
already); whole launches vary in each metric on their own.

- **A/A fails**: equal code, and the gate says *worse* (exit status 1), in any of the
  three metrics. The target is 5 %% at most; 123 of 2,000 (6.2 %%) is the 99th percentile
  at a true rate of 5 %%. With too few launches the gate cannot fail; how often something
  was *suspect* is given instead.
- **in decode alone**: how often of that it was the total tok/s.
- **interval misses**: 95 %% intervals of cells, and of whole runs, without the truth in
  them. The target is 3 to 7 %%. Where launches fall into groups it is less: intervals
  are then wider than they need to be.
- **“no change” wrong**: cells that really changed by exactly what matters, and were
  said not to have; likewise whole runs that changed by exactly 1 %%. The target is 5 %% at most.
- **4 cells −3 %%**, **1 cell −5 %%**, **all −3 %%**: in total tok/s; how often the gate
  fails. The target is 80 %% for usual noise, 3 launches a side and a profile. In
  parentheses: how often something was suspect.
- **false among found**: the share, among cells called *worse* or *better* in “4 cells
  −3 %%”, of those that did not change; the mean over comparisons, 0 where none was
  called. The target is 5 %%.

## Within the model
`

const validationBeyond = `
## Beyond the model

Worlds in which what the model assumes does not hold; shown so that it is known what
happens then. **stale profile**: the profile was made when noise was half of what it is.
**neighbours**: cells of one concurrency share another 0.5 % in each launch. **drift 2 %**:
the machine becomes 2 % slower from the first launch to the last, in the order ABBA, and
with one side after the other, where a change of a whole run is called suspect at
most, and the gate then gives status 3.
`

const validationTail = `
What these say: with the evidence that the gate asks for, its false alarms stay at or
below the target in every world of the model. One launch of each side could only guess.
Launches that fall into groups cost power, whatever the test; the fix is in how they are
measured. A profile that is out of date is noticed by its own test and put aside; two
launches of each side are then not enough. Where one side is measured after the other,
a drift of the machine fails no gate, but a slower run is not found either: that is why
the order should be ABBA.
`
