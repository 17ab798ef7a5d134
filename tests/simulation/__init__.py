"""The simulated world: the production runtime against a hostile, deterministic environment.

The driver, the schedule, supervision, `decide`, the fold, the effects and the walk are the real
ones. Replaced are the store under the journal, the engine with the provider behind it, the
artifacts, the clock, the person and the second driver. Each call that leaves a driver is a *point*,
numbered from 1; at a point one fault may happen. A schedule is the faults by point; it replays
exactly.

    choices      all schedules of a bounded number of faults, or drawn from a seed
    faults       what can go wrong at which kind of call
    world        clock, points, kills; store, provider, engine stand on it
    watch        an independent reading of the journal as it is written
    invariants   what must hold, one function each
    play         one schedule from genesis to the end of the run
    explore      enumerations, shrinking, reports
"""
