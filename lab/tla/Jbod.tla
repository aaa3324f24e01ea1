-------------------------------- MODULE Jbod --------------------------------
(***************************************************************************)
(* KIP-858, "Handle JBOD broker disk failure in KRaft": brokers with       *)
(* several log directories, the directory that the metadata records for    *)
(* every replica, directories that fail, and replicas that move.           *)
(*                                                                         *)
(* The page lab/tla/README.md explains the model. `python -m lab explore` searches the  *)
(* same states with the reference implementation (lab/explore); the *)
(* number of distinct states is equal. A comment "R-..." names the rule of *)
(* docs/spec.                                                              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Brokers,        \* a set of numbers from 1
    Dirs,           \* the directories of each broker: 1..D
    Partitions,     \* a set of numbers from 0; every broker has a replica of each
    Profile,        \* "kafka" or "kip858": where Kafka differs from the page
    Moves,          \* whether an operator moves replicas between directories
    Faults,         \* of "fail", "crash" and "expire": what may happen at any time
    Bug             \* "" or the name of a seeded bug: those of tests/support/seeded_bugs.py

ASSUME /\ Profile \in {"kafka", "kip858"} /\ Moves \in BOOLEAN
       /\ Faults \subseteq {"fail", "crash", "expire"}

VARIABLES
    meta,           \* what the controller's log says
    works,          \* works[b]: the disks of b that work
    stored,         \* stored[b]: logs that no process has in hand, <<partition, directory, future>>
    proc            \* proc[b]: the process of b, or Down

vars == <<meta, works, stored, proc>>

Kip == Profile = "kip858"
NoLeader == 0
None == 0           \* no log in any directory
Unassigned == 0     \* the reserved id UNASSIGNED

Down == [phase |-> "down"]

Range(s) == {s[i] : i \in DOMAIN s}

-----------------------------------------------------------------------------
(* METADATA: elections and in-sync sets *)

\* The replicas of p: all brokers, the first one rotated by p.
Replica(p, i) == ((i - 1 + p) % Cardinality(Brokers)) + 1

DirOnline(m, b, p) == m.dir[p][b] = Unassigned \/ m.dir[p][b] \in m.online[b]

\* R-ELECT-1
Acceptable(m, b, p) == ~m.fenced[b] /\ DirOnline(m, b, p)

\* The leader stays if it may. Else the first replica that is in sync and acceptable leads (R-ELECT-2).
Elect(ldr, isr, p, Acc(_)) ==
    IF ldr \in Range(isr) /\ Acc(ldr) THEN ldr
    ELSE LET able == {i \in 1..Cardinality(Brokers) : Replica(p, i) \in Range(isr) /\ Acc(Replica(p, i))}
         IN  IF able = {} THEN NoLeader
             ELSE Replica(p, CHOOSE i \in able : \A j \in able : i <= j)

\* b no longer serves p: it leaves the in-sync set, unless it is the last one there, and does not lead (R-LEADER-1).
Remove(m, b, p) ==
    LET rest == SelectSeq(m.isr[p], LAMBDA x : x # b)
        isr == IF rest = <<>> THEN m.isr[p] ELSE rest
        Acc(x) == x # b /\ Acceptable(m, x, p)
    IN  [m EXCEPT !.isr[p] = isr, !.leader[p] = Elect(m.leader[p], isr, p, Acc)]

RECURSIVE RemoveAll(_, _, _)
RemoveAll(m, b, ps) ==
    IF ps = {} THEN m
    ELSE LET p == CHOOSE q \in ps : TRUE IN RemoveAll(Remove(m, b, p), b, ps \ {p})

InSync(m, b) == {p \in Partitions : b \in Range(m.isr[p])}

Fence(m, b) ==
    LET left == IF Bug = "fencing leaves the leaders" THEN m ELSE RemoveAll(m, b, InSync(m, b))
    IN  [left EXCEPT !.fenced[b] = TRUE]

Changed(m, n) == {p \in Partitions : m.leader[p] # n.leader[p] \/ m.isr[p] # n.isr[p] \/ m.dir[p] # n.dir[p]}

-----------------------------------------------------------------------------
(* PROCESSES: the logs in hand, the queue of assignments, moves *)

Usable(pr) == pr.conf \ pr.failed

Ready(pr) == \/ pr.phase = "running"
             \/ /\ pr.phase \in {"recovery", "asked"}
                /\ Bug # "a broker that has caught up is not ready to be unfenced"
Asked(pr) == pr.phase \in {"asked", "running"}

InHand(pr) == {<<p, pr.cur[p], FALSE>> : p \in {q \in Partitions : pr.cur[q] # None}}
                \cup {<<p, pr.fut[p], TRUE>> : p \in {q \in Partitions : pr.fut[q] # None}}

Empty == [d |-> None, reason |-> "", untold |-> FALSE]
Waiting(pr) == {p \in Partitions : pr.queue[p] # Empty}

Entry(d, reason) == [d |-> d, reason |-> reason, untold |-> FALSE]

\* A newer assignment takes the place of one that waits (R-QUEUE-1).
Put(pr, p, entry) ==
    IF pr.queue[p] # Empty /\ Bug = "what is older wins in the queue" THEN pr.queue[p] ELSE entry

\* A move of p is over before its swap: its source or its target died, or it was cancelled. The original directory is
\* reported if the controller may have heard of the target (R-MOVE-4). By the page a report that was never sent is
\* withdrawn instead (R-MOVE-10).
EndMove(pr, p, cause) ==
    IF pr.move[p] = "absent" THEN pr
    ELSE LET withdrawn == /\ Kip /\ pr.queue[p].reason = "promotion"
                          /\ pr.queue[p].untold \/ Bug = "a move is withdrawn though it was told"
             heard == pr.move[p] \in {"queued", "accepted"}
             silent == \/ cause = "source" /\ Bug = "no revert when the source of a move dies"
                       \/ cause = "target" /\ Bug = "no revert when the target of a move dies"
                       \/ cause = "cancel" /\ Bug = "no revert when a move is cancelled"
             queue == IF ~heard \/ silent THEN pr.queue[p]
                      ELSE IF withdrawn THEN Empty ELSE Put(pr, p, Entry(pr.cur[p], "revert"))
         IN  [pr EXCEPT !.move[p] = "absent", !.queue[p] = queue]

\* Others learn of records later: each process that knows a changed partition is behind.
Behind(ps, prs) ==
    [b \in Brokers |->
        IF prs[b] = Down THEN Down
        ELSE [prs[b] EXCEPT !.seen =
                [p \in Partitions |-> IF p \in ps /\ @[p].known THEN [@[p] EXCEPT !.behind = TRUE] ELSE @[p]]]]

\* The controller goes to n, and the process of b to pr.
Step(n, b, pr) ==
    /\ meta' = n
    /\ proc' = Behind(Changed(meta, n), [proc EXCEPT ![b] = pr])

-----------------------------------------------------------------------------
(* INITIAL STATE: topics were just created, and no broker has read of them *)

Init ==
    /\ meta = [fenced |-> [b \in Brokers |-> FALSE],
               online |-> [b \in Brokers |-> Dirs],
               leader |-> [p \in Partitions |-> Replica(p, 1)],
               isr |-> [p \in Partitions |-> [i \in 1..Cardinality(Brokers) |-> Replica(p, i)]],
               dir |-> [p \in Partitions |-> [b \in Brokers |-> Unassigned]]]
    /\ works = [b \in Brokers |-> Dirs]
    /\ stored = [b \in Brokers |-> {}]
    /\ proc = [b \in Brokers |->
                 [phase |-> "running", conf |-> Dirs, failed |-> {}, read |-> "now",
                  seen |-> [p \in Partitions |-> [known |-> FALSE, dirs |-> <<>>, behind |-> FALSE]],
                  host |-> [p \in Partitions |-> "absent"],
                  cur |-> [p \in Partitions |-> None], fut |-> [p \in Partitions |-> None],
                  move |-> [p \in Partitions |-> "absent"],
                  leads |-> {},
                  queue |-> [p \in Partitions |-> Empty]]]

-----------------------------------------------------------------------------
(* DISKS AND PROCESSES COME AND GO *)

StopProcess(b, pr, logs) ==
    /\ stored' = [stored EXCEPT ![b] = @ \cup logs \cup InHand(pr)]
    /\ proc' = [proc EXCEPT ![b] = Down]

FailUsed(b, d) ==
    LET pr == proc[b]
        lost == {log \in InHand(pr) : log[2] = d}
        hit == {p \in Partitions : pr.cur[p] = d \/ pr.fut[p] = d}
        RECURSIVE Ended(_, _)
        Ended(x, ps) == IF ps = {} THEN x ELSE
            LET p == CHOOSE q \in ps : TRUE
            IN  Ended(EndMove(x, p, IF pr.cur[p] = d THEN "source" ELSE "target"), ps \ {p})
        e == Ended(pr, hit)
        after == [e EXCEPT
            !.failed = @ \cup {d},
            !.host = [p \in Partitions |-> IF pr.cur[p] = d /\ @[p] # "absent" THEN "offline" ELSE @[p]],
            !.cur = [p \in Partitions |-> IF @[p] = d THEN None ELSE @[p]],
            !.fut = [p \in Partitions |-> IF @[p] = d THEN None ELSE @[p]]]
    IN  IF Usable(after) = {}
        THEN StopProcess(b, after, lost)
        ELSE /\ stored' = [stored EXCEPT ![b] = @ \cup lost]
             /\ proc' = [proc EXCEPT ![b] = after]

Fail(b, d) ==
    /\ "fail" \in Faults /\ d \in works[b]
    /\ works' = [works EXCEPT ![b] = @ \ {d}]
    /\ IF proc[b] # Down /\ d \in Usable(proc[b]) THEN FailUsed(b, d) ELSE UNCHANGED <<stored, proc>>
    /\ UNCHANGED meta

Crash(b) ==
    /\ "crash" \in Faults /\ proc[b] # Down
    /\ StopProcess(b, proc[b], {})
    /\ UNCHANGED <<meta, works>>

OnDisk(b, p, future) ==
    LET found == {log \in stored[b] : log[1] = p /\ log[3] = future /\ log[2] \in works[b]}
    IN  IF found = {} THEN None ELSE (CHOOSE log \in found : TRUE)[2]

Start(b) ==
    /\ proc[b] = Down /\ works[b] # {}
    /\ proc' = [proc EXCEPT ![b] =
         [phase |-> "new", conf |-> works[b], failed |-> {}, read |-> "none",
          seen |-> [p \in Partitions |-> [known |-> FALSE, dirs |-> <<>>, behind |-> FALSE]],
          host |-> [p \in Partitions |-> "absent"],
          cur |-> [p \in Partitions |-> OnDisk(b, p, FALSE)], fut |-> [p \in Partitions |-> OnDisk(b, p, TRUE)],
          move |-> [p \in Partitions |-> "absent"],
          leads |-> {},
          queue |-> [p \in Partitions |-> Empty]]]
    /\ stored' = [stored EXCEPT ![b] = {log \in @ : log[2] \notin works[b]}]
    /\ UNCHANGED <<meta, works>>

-----------------------------------------------------------------------------
(* REGISTRATION, HEARTBEAT, SESSION *)

\* The controller has not heard of b for too long (R-HB-6).
Expire(b) ==
    /\ ~meta.fenced[b] /\ Bug # "a session that expires fences nobody"
    /\ Step(Fence(meta, b), b, proc[b])
    /\ UNCHANGED <<works, stored>>

Gone(b) == proc[b] = Down \/ proc[b].phase = "new"

ExpireGone(b) == Gone(b) /\ Expire(b)
ExpireEarly(b) == "expire" \in Faults /\ ~Gone(b) /\ Expire(b)

\* A new process registers what was readable at its start (R-IDENT-1, R-IDENT-2), once the session of the one before
\* has ended (R-REG-2). It is fenced (R-REG-11).
Register(b) ==
    /\ proc[b].phase = "new" /\ meta.fenced[b]
    /\ Step([RemoveAll(meta, b, InSync(meta, b)) EXCEPT !.online[b] = proc[b].conf],
            b, [proc[b] EXCEPT !.phase = "registered", !.read = IF @ = "now" THEN "old" ELSE @])
    /\ UNCHANGED <<works, stored>>

\* What a heartbeat says has failed: all that failed since the start (R-LIFE-5).
Told(pr) == IF Bug \in {"failed directories are never reported", "a process forgets that a directory failed"}
            THEN {} ELSE pr.failed

\* Partitions without a leader get one. Kafka goes by the directories from before the heartbeat (R-QUIRK-4).
Unfence(m, b, pr) ==
    LET n == [m EXCEPT !.fenced[b] = FALSE]
        Acc(p, x) == IF x = b THEN DirOnline(m, b, p) /\ ~(Kip /\ m.dir[p][b] \in Told(pr)) ELSE Acceptable(n, x, p)
    IN  [n EXCEPT !.leader =
           [p \in Partitions |-> IF @[p] # NoLeader \/ Bug = "unfencing elects nobody" THEN @[p]
                                 ELSE LET A(x) == Acc(p, x) IN Elect(NoLeader, m.isr[p], p, A)]]

\* Failures come after the change of state (R-HB-4), but are worked out on the state from before it (R-CTL-7, R-FAIL-1).
\* An empty list of directories means no change (R-QUIRK-5).
ReportFailures(before, m, b, newly) ==
    LET hit == IF Bug = "a heartbeat that reports a failure leaves the leaders" THEN {}
               ELSE {p \in Partitions : before.dir[p][b] \in newly}
        r == RemoveAll(before, b, hit)
        stays == Bug \in {"a failed directory stays registered", "a change of a registration leaves its directories"}
        online == IF stays THEN m.online[b] ELSE m.online[b] \ newly
    IN  [m EXCEPT
          !.leader = [p \in Partitions |-> IF r.leader[p] # before.leader[p] THEN r.leader[p] ELSE @[p]],
          !.isr = [p \in Partitions |-> IF r.isr[p] # before.isr[p] THEN r.isr[p] ELSE @[p]],
          !.online[b] = IF online = {} THEN @ ELSE online]

Heartbeat(b) ==
    LET pr == proc[b]
        holds == Kip /\ Cardinality(pr.conf) > 1 /\ Waiting(pr) # {} /\ ~Asked(pr)              \* R-LIFE-9
        wantFence == ~Ready(pr) \/ holds \/ Bug = "a broker asks to stay fenced for ever"       \* R-LIFE-3
        unknown == /\ Kip /\ Cardinality(meta.online[b]) > 1                                    \* R-HB-5
                   /\ Bug # "a broker is unfenced before its assignments are known"
                   /\ \E p \in Partitions : meta.dir[p][b] = Unassigned
        unfences == meta.fenced[b] /\ ~wantFence /\ pr.read = "now" /\ ~unknown                 \* R-HB-2
        m == IF unfences /\ Bug # "a broker is never unfenced" THEN Unfence(meta, b, pr)
             ELSE IF ~meta.fenced[b] /\ wantFence THEN Fence(meta, b)
             ELSE meta
        newly == meta.online[b] \cap Told(pr)                                                   \* R-FAIL-2
        n == IF newly = {} THEN m ELSE ReportFailures(meta, m, b, newly)
        phase == IF pr.phase = "registered" THEN (IF pr.read = "now" THEN "recovery" ELSE "registered")  \* R-LIFE-4
                 ELSE IF pr.phase \in {"recovery", "asked"}
                      THEN (IF ~n.fenced[b] THEN "running" ELSE IF ~wantFence THEN "asked" ELSE pr.phase)
                 ELSE pr.phase
    IN  /\ pr.phase \notin {"down", "new"}
        /\ Step(n, b, [pr EXCEPT !.phase = phase])
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------
(* A BROKER APPLIES THE METADATA (docs/spec/broker.md) *)

Count(pr, d) == Cardinality({p \in Partitions : pr.cur[p] = d}) + Cardinality({p \in Partitions : pr.fut[p] = d})

\* Where a log goes that is assigned nowhere (R-DISK-1).
Emptiest(pr) == {d \in Usable(pr) : \A e \in Usable(pr) : Count(pr, d) <= Count(pr, e)}

\* At a start, a future log that lies where the metadata wants the replica takes its place: in Kafka
\* at once, by the page after it has caught up (R-MOVE-9).
Adopt(pr, b) ==
    LET whole == {p \in Partitions : pr.fut[p] # None /\ pr.fut[p] = meta.dir[p][b]}
        now == IF Kip THEN {p \in whole : pr.cur[p] = None} ELSE whole
    IN  [pr EXCEPT
          !.cur = [p \in Partitions |-> IF p \in now THEN pr.fut[p] ELSE @[p]],
          !.fut = [p \in Partitions |-> IF p \in now THEN None ELSE @[p]],
          !.move = [p \in Partitions |-> IF p \in whole \ now THEN "accepted" ELSE @[p]]]

\* All that applying p may lead to; listed is FALSE where the directories of p are those applied before.
\*
\* A log in hand stays (R-DISK-5). A log that is missing is created in the assigned directory (R-DECIDE-1), or in the
\* emptiest (R-DECIDE-5, R-DECIDE-11). If the assigned directory does not work, and another is offline, the log may lie
\* there: none is created (R-DECIDE-10, R-HOST-7). A replica on a dead disk is left alone (R-HOST-3). A log that the
\* process had before is not created beside an offline directory (R-DISK-4, R-HOST-6).
ApplyOne(pr, b, p, listed) ==
    LET d == meta.dir[p][b]
        offline == Usable(pr) # Dirs
        led == [pr EXCEPT !.leads = IF meta.leader[p] = b THEN @ \cup {p} ELSE @ \ {p}]
        hosted == led.host[p] # "absent"
        Create(e) == IF hosted /\ offline THEN [led EXCEPT !.host[p] = "offline"]
                     ELSE [led EXCEPT !.host[p] = "online", !.cur[p] = e]
        Kept == [led EXCEPT !.host[p] = "online",
                   !.move[p] = IF Kip /\ listed /\ led.fut[p] # None /\ d = led.fut[p] /\ @ = "absent" THEN "accepted" ELSE @]
        placed == IF led.cur[p] # None THEN {Kept}
                  ELSE IF listed /\ d \in Usable(pr) THEN {Create(d)}
                  ELSE IF listed /\ d # Unassigned /\ offline
                          /\ Bug # "LOST is refilled while a disk is offline" THEN {[led EXCEPT !.host[p] = "without log"]}
                  ELSE {Create(e) : e \in Emptiest(led)}
        \* In Kafka a move begins anew (R-MOVE-7).
        Begin(x) == IF x.host[p] = "online" /\ x.fut[p] # None /\ (~Kip \/ x.move[p] = "absent")
                    THEN [x EXCEPT !.move[p] = "none"] ELSE x
        \* Where the log is, if the metadata says otherwise (R-DECIDE-3, R-DECIDE-6, R-DECIDE-9), and the move does not
        \* lead there (R-DECIDE-4).
        Report(x) == IF /\ listed /\ x.cur[p] # None /\ x.cur[p] # d
                        /\ ~(Kip /\ x.move[p] # "absent" /\ x.fut[p] = d)
                        /\ Bug # "a log is created and not reported"
                     THEN [x EXCEPT !.queue[p] = Put(x, p, Entry(x.cur[p], "metadata"))] ELSE x
    IN  IF led.host[p] = "offline" THEN {led} ELSE {Report(Begin(x)) : x \in placed}

RECURSIVE ApplyAll(_, _, _)
ApplyAll(prs, b, order) ==
    IF order = <<>> THEN prs
    ELSE LET p == Head(order)
             listed == LET s == proc[b].seen[p] IN ~s.known \/ s.dirs # meta.dir[p]
         IN  ApplyAll(UNION {ApplyOne(pr, b, p, listed) : pr \in prs}, b, Tail(order))

RECURSIVE Ordered(_)
Ordered(ps) == IF ps = {} THEN <<>>
               ELSE LET p == CHOOSE q \in ps : \A r \in ps : q <= r IN <<p>> \o Ordered(ps \ {p})

\* Partitions to lead come first (R-HOST-1). Directories count as changed where any of the partition did (R-LOCAL-2).
Deliver(b) ==
    LET pr == proc[b]
        new == {p \in Partitions : ~pr.seen[p].known \/ pr.seen[p].behind}
        order == Ordered({p \in new : meta.leader[p] = b}) \o Ordered({p \in new : meta.leader[p] # b})
        first == IF pr.read = "none" THEN Adopt(pr, b) ELSE pr
    IN  /\ pr # Down
        /\ pr.read # "now" \/ new # {}
        /\ \E x \in ApplyAll({first}, b, order) :
              proc' = [proc EXCEPT ![b] = [x EXCEPT
                 !.read = "now",
                 !.seen = [p \in Partitions |-> [known |-> TRUE, dirs |-> meta.dir[p], behind |-> FALSE]]]]
        /\ UNCHANGED <<meta, works, stored>>

-----------------------------------------------------------------------------
(* AssignReplicasToDirs *)

\* R-ASSIGN-3, R-ASSIGN-5. In Kafka the election sees the directory from before (R-ASSIGN-6).
AssignOne(m, b, p, d) ==
    LET n == [m EXCEPT !.dir[p][b] = d]
        Acc(x) == IF x = b THEN ~m.fenced[b] /\ DirOnline(IF Kip THEN n ELSE m, b, p) ELSE Acceptable(m, x, p)
        elected == [n EXCEPT !.leader[p] = Elect(m.leader[p], m.isr[p], p, Acc)]
        done == IF d \in m.online[b] THEN elected ELSE Remove(IF Kip THEN n ELSE elected, b, p)
    IN  IF Bug = "an assignment is confirmed and not written" THEN m
        ELSE IF Bug = "a change of a partition leaves its directories" THEN [done EXCEPT !.dir = m.dir]
        ELSE done

RECURSIVE AssignAll(_, _, _)
AssignAll(m, b, ps) ==
    IF ps = {} THEN m
    ELSE LET p == CHOOSE q \in ps : TRUE IN AssignAll(AssignOne(m, b, p, proc[b].queue[p].d), b, ps \ {p})

\* A process uses the epoch of the registration it has read (R-PROC-3). An answer that gets lost leaves all in the queue
\* (R-QUEUE-6). In Kafka a confirmation is for whatever move is there (R-MOVE-8).
Assign(b, heard) ==
    LET pr == proc[b]
        sent == {p \in Waiting(pr) : pr.seen[p].known}
        taken == pr.read = "now"
        told == [p \in Partitions |-> IF p \in sent THEN [pr.queue[p] EXCEPT !.untold = FALSE]
                                      ELSE Empty]
        confirmed == IF Bug = "a confirmation is overheard" THEN {}
                     ELSE {p \in sent : pr.queue[p].reason = "promotion" /\ pr.move[p] # "absent"
                                          /\ (~Kip \/ pr.fut[p] = pr.queue[p].d)}
        after == IF taken /\ heard
                 THEN [pr EXCEPT !.queue = IF Bug = "the queue never drains" THEN told ELSE [p \in Partitions |-> Empty],
                                 !.move = [p \in Partitions |-> IF p \in confirmed THEN "accepted" ELSE @[p]]]
                 ELSE [pr EXCEPT !.queue = told]
    IN  /\ pr # Down
        /\ Waiting(pr) # {}
        /\ Step(IF taken THEN AssignAll(meta, b, sent) ELSE meta, b, after)
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------
(* MOVES BETWEEN DIRECTORIES *)

\* The copy has caught up: the first time the new directory is reported (R-MOVE-1), once that is confirmed the copy takes
\* the place of the log (R-MOVE-2, R-MOVE-3).
CatchUp(b, p) ==
    LET pr == proc[b]
        untold == Kip /\ pr.queue[p] = Empty
        report == [d |-> pr.fut[p], reason |-> "promotion", untold |-> untold]
        queue == IF Bug = "a move that has caught up is not reported" THEN pr.queue[p] ELSE Put(pr, p, report)
        swaps == \/ pr.move[p] = "accepted" /\ Bug # "a confirmed move never swaps"
                 \/ pr.move[p] = "queued" /\ Bug = "a replica is promoted without confirmation"
    IN  /\ pr # Down
        /\ pr.move[p] = "none" \/ swaps
        /\ pr.cur[p] # None /\ pr.fut[p] # None
        /\ proc' = [proc EXCEPT ![b] =
              IF pr.move[p] = "none"
              THEN [pr EXCEPT !.move[p] = "queued", !.queue[p] = queue]
              ELSE [pr EXCEPT !.cur[p] = pr.fut[p], !.fut[p] = None, !.move[p] = "absent"]]
        /\ UNCHANGED <<meta, works, stored>>

\* An operator asks for a move; the own directory cancels one (R-HOST-5). No copy begins beside an offline directory
\* (R-DISK-4).
Move(b, p, d) ==
    LET pr == proc[b]
        ended == IF pr.fut[p] # None THEN [EndMove(pr, p, "cancel") EXCEPT !.fut[p] = None] ELSE pr
    IN  /\ Moves /\ pr # Down
        /\ Usable(pr) = Dirs \/ Bug = "a move is allowed while a directory is offline"
        /\ d \in Usable(pr)
        /\ pr.host[p] = "online" /\ pr.cur[p] # None
        /\ d # pr.fut[p] /\ (d # pr.cur[p] \/ pr.fut[p] # None)
        /\ proc' = [proc EXCEPT ![b] =
              IF d = pr.cur[p] THEN ended ELSE [ended EXCEPT !.fut[p] = d, !.move[p] = "none"]]
        /\ UNCHANGED <<meta, works, stored>>

\* A leader takes a replica that a broker serves into the in-sync set (R-ISR-3).
Rejoin(p, b) ==
    LET l == meta.leader[p]
    IN  /\ l # NoLeader /\ l # b /\ b \notin Range(meta.isr[p]) /\ ~meta.fenced[b]
        /\ proc[l] # Down /\ proc[b] # Down
        /\ proc[l].seen[p].known /\ ~proc[l].seen[p].behind
        /\ proc[l].cur[p] # None /\ proc[b].cur[p] # None
        /\ Step([meta EXCEPT !.isr[p] = Append(@, b)], b, proc[b])
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------

\* What the protocol does by itself, sooner or later.
Protocol ==
    \E b \in Brokers :
        \/ ExpireGone(b) \/ Register(b) \/ Heartbeat(b) \/ Deliver(b) \/ Assign(b, TRUE)
        \/ \E p \in Partitions : CatchUp(b, p) \/ Rejoin(p, b)

\* Faults and operators.
World ==
    \E b \in Brokers :
        \/ \E d \in Dirs : Fail(b, d)
        \/ Crash(b) \/ Start(b) \/ ExpireEarly(b) \/ Assign(b, FALSE)
        \/ \E p \in Partitions, d \in Dirs : Move(b, p, d)

Next == Protocol \/ World

Spec == Init /\ [][Next]_vars

\* Weak fairness of each step of the protocol, and a world that comes to rest (R-EXPLORE-6). Without moves there is no
\* future log to catch up, and with one broker there is no leader to rejoin. TLC's time doubles with each condition.
Fairness ==
    \A b \in Brokers :
        /\ WF_vars(ExpireGone(b)) /\ WF_vars(Register(b)) /\ WF_vars(Heartbeat(b)) /\ WF_vars(Deliver(b))
        /\ WF_vars(Assign(b, TRUE))
        /\ \A p \in IF Moves THEN Partitions ELSE {} : WF_vars(CatchUp(b, p))
        /\ \A p \in IF Brokers = {b} THEN {} ELSE Partitions : WF_vars(Rejoin(p, b))

FairSpec == Spec /\ Fairness /\ <>[][Protocol]_vars

-----------------------------------------------------------------------------
(* WHAT HOLDS IN EVERY STATE *)

\* R-INV-2: a leader is in sync.
LeaderInSync == \A p \in Partitions : meta.leader[p] # NoLeader => meta.leader[p] \in Range(meta.isr[p])

\* R-INV-9: a leader is unfenced, and its directory is online by the metadata.
LeaderOnline ==
    \A p \in Partitions : LET l == meta.leader[p] IN l # NoLeader => Acceptable(meta, l, p)

\* The log of p on b lies on dead disks only.
DeadLog(b, p) ==
    /\ proc[b] # Down => proc[b].cur[p] = None
    /\ LET lying == {log \in stored[b] : log[1] = p /\ ~log[3]}
       IN  lying # {} /\ \A log \in lying : log[2] \notin works[b]

LedFromDeadDisk(b, p) == proc[b] # Down /\ meta.leader[p] = b /\ DeadLog(b, p)

\* b has nothing left to do or to say.
AtRest(b) ==
    LET pr == proc[b]
    IN  /\ pr # Down
        /\ pr.phase # "new" /\ pr.read = "now" /\ ~meta.fenced[b]
        /\ \A p \in Partitions : pr.seen[p] = [known |-> TRUE, dirs |-> meta.dir[p], behind |-> FALSE]
        /\ Waiting(pr) = {} /\ \A p \in Partitions : pr.move[p] = "absent"
        /\ meta.online[b] \cap pr.failed = {}

\* R-INV-31: at rest, the metadata has every replica where it is.
PlacedAsSaid ==
    \A b \in Brokers : AtRest(b) =>
        \A p \in Partitions : proc[b].cur[p] # None => meta.dir[p][b] = proc[b].cur[p]

\* R-INV-36: at rest, no running broker leads a partition whose log is on a dead disk.
NoneLedFromDeadDisk == \A b \in Brokers : AtRest(b) => \A p \in Partitions : ~LedFromDeadDisk(b, p)

-----------------------------------------------------------------------------
(* WHAT HOLDS OF EVERY STEP *)

\* R-INV-10: after a failure was reported, the broker leads nothing there, and is in sync only as the last one.
FailuresMoveLeaders ==
    [][\A b \in Brokers : Heartbeat(b) =>
         \A p \in Partitions : meta.dir[p][b] \in meta.online[b] \cap Told(proc[b]) =>
            /\ meta'.leader[p] # b
            /\ b \in Range(meta'.isr[p]) => meta.isr[p] = <<b>>]_vars

\* R-INV-13: an assignment that is answered is in the metadata.
AssignmentsWritten ==
    [][\A b \in Brokers : (proc[b] # Down /\ proc[b].read = "now" /\ (Assign(b, TRUE) \/ Assign(b, FALSE))) =>
         \A p \in Waiting(proc[b]) : proc[b].seen[p].known => meta'.dir[p][b] = proc[b].queue[p].d]_vars

\* R-INV-29, by the page: a broker with several directories is unfenced with no replica unassigned.
UnfencedWhenAssigned ==
    [][\A b \in Brokers : (Kip /\ meta.fenced[b] /\ ~meta'.fenced[b] /\ Cardinality(meta.online[b]) > 1) =>
         \A p \in Partitions : meta.dir[p][b] # Unassigned]_vars

\* R-INV-37: an assigned replica is not created while its log lies on a disk of the broker.
NoSecondLog ==
    [][\A b \in Brokers : (proc[b] # Down /\ proc'[b] # Down) =>
         \A p \in Partitions :
            (/\ proc[b].cur[p] = None /\ proc[b].fut[p] = None /\ proc'[b].cur[p] # None
             /\ meta.dir[p][b] # Unassigned /\ meta.dir[p][b] \notin Usable(proc[b]))
            => \A log \in stored[b] : log[1] # p \/ log[3]]_vars

\* R-INV-39: a move swaps only where the metadata has its target.
SwapsAsRecorded ==
    [][\A b \in Brokers, p \in Partitions : CatchUp(b, p) =>
         (proc'[b].cur[p] # proc[b].cur[p] => meta.dir[p][b] = proc[b].fut[p])]_vars

\* R-INV-40: no copy begins beside an offline directory.
NoCopyBesideOffline ==
    [][\A b \in Brokers : (proc[b] # Down /\ proc'[b] # Down) =>
         (Usable(proc[b]) # Dirs =>
            \A p \in Partitions : proc[b].fut[p] = None => proc'[b].fut[p] = None)]_vars

-----------------------------------------------------------------------------
(* WHAT HAPPENS IN THE END (R-EXPLORE-6) *)

\* Under FairSpec, each is "P leads to not P", for each broker and each partition.

Lives(b) == proc[b] # Down
Leads(b, p) == meta.leader[p] = b

\* A leader on a dead disk leads to another leader, or to a dead broker.
DeadLeaderEnds == \A b \in Brokers, p \in Partitions : LedFromDeadDisk(b, p) ~> ~LedFromDeadDisk(b, p)

\* A leader without any log leads to one with a log, to another, or to none.
LeadsWithoutLog(b, p) == Lives(b) /\ Leads(b, p) /\ proc[b].cur[p] = None /\ ~DeadLog(b, p)
MissingLogEnds == \A b \in Brokers, p \in Partitions : LeadsWithoutLog(b, p) ~> ~LeadsWithoutLog(b, p)

\* A fenced broker with a disk that works leads to an unfenced or a dead one.
Fenced(b) == Lives(b) /\ meta.fenced[b]
FencedEnds == \A b \in Brokers : Fenced(b) ~> ~Fenced(b)

\* An unassigned replica of a live broker leads to an assigned one.
IsUnassigned(b, p) == Lives(b) /\ meta.dir[p][b] = Unassigned
UnassignedEnds == \A b \in Brokers, p \in Partitions : IsUnassigned(b, p) ~> ~IsUnassigned(b, p)

\* A queue leads to an empty queue.
Queued(b) == Lives(b) /\ Waiting(proc[b]) # {}
QueueEnds == \A b \in Brokers : Queued(b) ~> ~Queued(b)

\* A move leads to its end.
Moving(b, p) == Lives(b) /\ proc[b].move[p] # "absent"
MoveEnds == \A b \in Brokers, p \in Partitions : Moving(b, p) ~> ~Moving(b, p)

\* A failed directory leads to a registration without it.
Unreported(b) == Lives(b) /\ proc[b].phase # "new" /\ meta.online[b] \cap proc[b].failed # {}
UnreportedEnds == \A b \in Brokers : Unreported(b) ~> ~Unreported(b)

\* A replica that is not where the metadata has it leads to one that is.
Misplaced(b, p) == Lives(b) /\ proc[b].cur[p] # None /\ proc[b].cur[p] # meta.dir[p][b]
MisplacedEnds == \A b \in Brokers, p \in Partitions : Misplaced(b, p) ~> ~Misplaced(b, p)

\* A leader whose process is gone leads to another, or to a process.
LedByNobody(b, p) == ~Lives(b) /\ Leads(b, p)
GoneLeaderEnds == \A b \in Brokers, p \in Partitions : LedByNobody(b, p) ~> ~LedByNobody(b, p)

\* A replica that is in sync and served leads to a leader.
CouldLead(b, p) == Lives(b) /\ Leads(NoLeader, p) /\ b \in Range(meta.isr[p]) /\ proc[b].cur[p] # None
LeaderlessEnds == \A b \in Brokers, p \in Partitions : CouldLead(b, p) ~> ~CouldLead(b, p)

=============================================================================
