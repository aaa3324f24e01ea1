-------------------------------- MODULE Jbod --------------------------------
(***************************************************************************)
(* KIP-858, "Handle JBOD broker disk failure in KRaft": brokers with       *)
(* several log directories, the directory that the metadata records for    *)
(* every replica, directories that fail, and replicas that move.           *)
(*                                                                         *)
(* The page tla/README.md explains the model. `jbod explore` searches the  *)
(* same states with the reference implementation (jbod_model/explore); the *)
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
    Bug             \* "" or the name of a seeded bug

ASSUME Profile \in {"kafka", "kip858"} /\ Moves \in BOOLEAN

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

Acceptable(m, b, p) == ~m.fenced[b] /\ DirOnline(m, b, p)

\* The leader stays if it may. Else the first replica that is in sync and acceptable leads (R-ELECT).
Elect(ldr, isr, p, Acc(_)) ==
    IF ldr \in Range(isr) /\ Acc(ldr) THEN ldr
    ELSE LET able == {i \in 1..Cardinality(Brokers) : Replica(p, i) \in Range(isr) /\ Acc(Replica(p, i))}
         IN  IF able = {} THEN NoLeader
             ELSE Replica(p, CHOOSE i \in able : \A j \in able : i <= j)

\* b no longer serves p: it leaves the in-sync set, unless it is the last one there, and does not lead.
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

Fence(m, b) == [RemoveAll(m, b, InSync(m, b)) EXCEPT !.fenced[b] = TRUE]

Changed(m, n) == {p \in Partitions : m.leader[p] # n.leader[p] \/ m.isr[p] # n.isr[p] \/ m.dir[p] # n.dir[p]}

-----------------------------------------------------------------------------
(* PROCESSES: the logs in hand, the queue of assignments, moves *)

Usable(pr) == pr.conf \ pr.failed

Ready(pr) == pr.phase \in {"recovery", "asked", "running"}
Asked(pr) == pr.phase \in {"asked", "running"}

InHand(pr) == {<<p, pr.cur[p], FALSE>> : p \in {q \in Partitions : pr.cur[q] # None}}
                \cup {<<p, pr.fut[p], TRUE>> : p \in {q \in Partitions : pr.fut[q] # None}}

Empty == [d |-> None, reason |-> "", untold |-> FALSE]
Waiting(pr) == {p \in Partitions : pr.queue[p] # Empty}

Entry(d, reason) == [d |-> d, reason |-> reason, untold |-> FALSE]

\* A move of p ends before its end. What the controller may have heard of it is reported back (R-MOVE).
EndMove(pr, p) ==
    IF pr.move[p] = "absent" THEN pr
    ELSE LET withdrawn == Kip /\ pr.queue[p].reason = "promotion" /\ pr.queue[p].untold
             heard == pr.move[p] \in {"queued", "accepted"}
             queue == IF ~heard \/ Bug = "no revert" THEN pr.queue[p]
                      ELSE IF withdrawn THEN Empty ELSE Entry(pr.cur[p], "revert")
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
        Ended(x, ps) == IF ps = {} THEN x ELSE LET p == CHOOSE q \in ps : TRUE IN Ended(EndMove(x, p), ps \ {p})
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
    /\ d \in works[b]
    /\ works' = [works EXCEPT ![b] = @ \ {d}]
    /\ IF proc[b] # Down /\ d \in Usable(proc[b]) THEN FailUsed(b, d) ELSE UNCHANGED <<stored, proc>>
    /\ UNCHANGED meta

Crash(b) ==
    /\ proc[b] # Down
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

Expire(b) ==
    /\ ~meta.fenced[b]
    /\ Step(Fence(meta, b), b, proc[b])
    /\ UNCHANGED <<works, stored>>

Register(b) ==
    /\ proc[b].phase = "new" /\ meta.fenced[b]
    /\ Step([RemoveAll(meta, b, InSync(meta, b)) EXCEPT !.online[b] = proc[b].conf],
            b, [proc[b] EXCEPT !.phase = "registered", !.read = IF @ = "now" THEN "old" ELSE @])
    /\ UNCHANGED <<works, stored>>

Unfence(m, b, pr) ==
    LET n == [m EXCEPT !.fenced[b] = FALSE]
        Acc(p, x) == IF x = b THEN DirOnline(m, b, p) /\ ~(Kip /\ m.dir[p][b] \in pr.failed) ELSE Acceptable(n, x, p)
    IN  [n EXCEPT !.leader =
           [p \in Partitions |-> IF @[p] # NoLeader THEN @[p]
                                 ELSE LET A(x) == Acc(p, x) IN Elect(NoLeader, m.isr[p], p, A)]]

\* The failure is worked out on the state before the heartbeat, and written after its other records (R-CTL-7).
ReportFailures(before, m, b, newly) ==
    LET hit == {p \in Partitions : before.dir[p][b] \in newly}
        r == RemoveAll(before, b, hit)
        online == m.online[b] \ newly
    IN  [m EXCEPT
          !.leader = [p \in Partitions |-> IF r.leader[p] # before.leader[p] THEN r.leader[p] ELSE @[p]],
          !.isr = [p \in Partitions |-> IF r.isr[p] # before.isr[p] THEN r.isr[p] ELSE @[p]],
          !.online[b] = IF online = {} THEN @ ELSE online]

Heartbeat(b) ==
    LET pr == proc[b]
        holds == Kip /\ Cardinality(pr.conf) > 1 /\ Waiting(pr) # {} /\ ~Asked(pr)
        wantFence == ~Ready(pr) \/ holds
        known == Kip /\ Cardinality(meta.online[b]) > 1 /\ \E p \in Partitions : meta.dir[p][b] = Unassigned
        m == IF meta.fenced[b] /\ ~wantFence /\ pr.read = "now" /\ ~known /\ Bug # "never unfenced" THEN Unfence(meta, b, pr)
             ELSE IF ~meta.fenced[b] /\ wantFence THEN Fence(meta, b)
             ELSE meta
        newly == IF Bug = "failures not reported" THEN {} ELSE meta.online[b] \cap pr.failed
        n == IF newly = {} THEN m ELSE ReportFailures(meta, m, b, newly)
        phase == IF pr.phase = "registered" THEN (IF pr.read = "now" THEN "recovery" ELSE "registered")
                 ELSE IF pr.phase \in {"recovery", "asked"}
                      THEN (IF ~n.fenced[b] THEN "running" ELSE IF ~wantFence THEN "asked" ELSE pr.phase)
                 ELSE pr.phase
    IN  /\ pr.phase \notin {"down", "new"}
        /\ Step(n, b, [pr EXCEPT !.phase = phase])
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------
(* A BROKER APPLIES THE METADATA (docs/spec/broker.md) *)

Count(pr, d) == Cardinality({p \in Partitions : pr.cur[p] = d}) + Cardinality({p \in Partitions : pr.fut[p] = d})
Emptiest(pr) == {d \in Usable(pr) : \A e \in Usable(pr) : Count(pr, d) <= Count(pr, e)}

\* At a start, a future log that lies where the metadata wants the replica takes its place (R-ABANDONED).
Adopt(pr, b) ==
    LET whole == {p \in Partitions : pr.fut[p] # None /\ pr.fut[p] = meta.dir[p][b]}
        now == IF Kip THEN {p \in whole : pr.cur[p] = None} ELSE whole
    IN  [pr EXCEPT
          !.cur = [p \in Partitions |-> IF p \in now THEN pr.fut[p] ELSE @[p]],
          !.fut = [p \in Partitions |-> IF p \in now THEN None ELSE @[p]],
          !.move = [p \in Partitions |-> IF p \in whole \ now THEN "accepted" ELSE @[p]]]

\* All that applying p may lead to; listed is FALSE where the directories of p are those applied before (R-DECIDE).
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
                  ELSE IF listed /\ d # Unassigned /\ offline /\ Bug # "lost log recreated" THEN {[led EXCEPT !.host[p] = "without log"]}
                  ELSE {Create(e) : e \in Emptiest(led)}
        Begin(x) == IF x.host[p] = "online" /\ x.fut[p] # None /\ (~Kip \/ x.move[p] = "absent")
                    THEN [x EXCEPT !.move[p] = "none"] ELSE x
        Report(x) == IF listed /\ x.cur[p] # None /\ x.cur[p] # d
                        /\ ~(Kip /\ x.move[p] # "absent" /\ x.fut[p] = d) /\ Bug # "created but not reported"
                     THEN [x EXCEPT !.queue[p] = Entry(x.cur[p], "metadata")] ELSE x
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

AssignOne(m, b, p, d) ==
    LET n == [m EXCEPT !.dir[p][b] = d]
        Acc(x) == IF x = b THEN ~m.fenced[b] /\ DirOnline(IF Kip THEN n ELSE m, b, p) ELSE Acceptable(m, x, p)
        elected == [n EXCEPT !.leader[p] = Elect(m.leader[p], m.isr[p], p, Acc)]
    IN  IF d \in m.online[b]
        THEN elected
        ELSE Remove(IF Kip THEN n ELSE elected, b, p)

RECURSIVE AssignAll(_, _, _)
AssignAll(m, b, ps) ==
    IF ps = {} THEN m
    ELSE LET p == CHOOSE q \in ps : TRUE IN AssignAll(AssignOne(m, b, p, proc[b].queue[p].d), b, ps \ {p})

Assign(b, heard) ==
    LET pr == proc[b]
        sent == {p \in Waiting(pr) : pr.seen[p].known}
        taken == pr.read = "now"
        told == [p \in Partitions |-> IF p \in sent THEN [pr.queue[p] EXCEPT !.untold = FALSE]
                                      ELSE Empty]
        confirmed == {p \in sent : pr.queue[p].reason = "promotion" /\ pr.move[p] # "absent"
                                     /\ (~Kip \/ pr.fut[p] = pr.queue[p].d)}
        after == IF taken /\ heard
                 THEN [pr EXCEPT !.queue = [p \in Partitions |-> Empty],
                                 !.move = [p \in Partitions |-> IF p \in confirmed THEN "accepted" ELSE @[p]]]
                 ELSE [pr EXCEPT !.queue = told]
    IN  /\ pr # Down
        /\ Waiting(pr) # {}
        /\ Step(IF taken THEN AssignAll(meta, b, sent) ELSE meta, b, after)
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------
(* MOVES BETWEEN DIRECTORIES *)

CatchUp(b, p) ==
    LET pr == proc[b]
        untold == Kip /\ pr.queue[p] = Empty
        promoted == [pr EXCEPT !.cur[p] = pr.fut[p], !.fut[p] = None, !.move[p] = "absent"]
    IN  /\ pr # Down
        /\ pr.move[p] \in {"none", "accepted"} \/ (pr.move[p] = "queued" /\ Bug = "promotion without confirmation")
        /\ pr.cur[p] # None /\ pr.fut[p] # None
        /\ proc' = [proc EXCEPT ![b] =
              IF pr.move[p] = "none"
              THEN [pr EXCEPT !.move[p] = "queued",
                              !.queue[p] = [d |-> pr.fut[p], reason |-> "promotion", untold |-> untold]]
              ELSE promoted]
        /\ UNCHANGED <<meta, works, stored>>

Move(b, p, d) ==
    LET pr == proc[b]
        ended == IF pr.fut[p] # None THEN [EndMove(pr, p) EXCEPT !.fut[p] = None] ELSE pr
    IN  /\ Moves /\ pr # Down
        /\ Usable(pr) = Dirs \/ Bug = "move while a directory is offline"
        /\ d \in Usable(pr)
        /\ pr.host[p] = "online" /\ pr.cur[p] # None
        /\ d # pr.fut[p] /\ (d # pr.cur[p] \/ pr.fut[p] # None)
        /\ proc' = [proc EXCEPT ![b] =
              IF d = pr.cur[p] THEN ended ELSE [ended EXCEPT !.fut[p] = d, !.move[p] = "none"]]
        /\ UNCHANGED <<meta, works, stored>>

\* A leader takes a replica that a broker serves into the in-sync set.
Rejoin(p, b) ==
    LET l == meta.leader[p]
    IN  /\ l # NoLeader /\ l # b /\ b \notin Range(meta.isr[p]) /\ ~meta.fenced[b]
        /\ proc[l] # Down /\ proc[b] # Down
        /\ proc[l].seen[p].known /\ ~proc[l].seen[p].behind
        /\ proc[l].cur[p] # None /\ proc[b].cur[p] # None
        /\ Step([meta EXCEPT !.isr[p] = Append(@, b)], b, proc[b])
        /\ UNCHANGED <<works, stored>>

-----------------------------------------------------------------------------

Next ==
    \E b \in Brokers :
        \/ \E d \in Dirs : Fail(b, d)
        \/ Crash(b) \/ Start(b)
        \/ Expire(b) \/ Register(b) \/ Heartbeat(b)
        \/ Deliver(b)
        \/ Assign(b, TRUE) \/ Assign(b, FALSE)
        \/ \E p \in Partitions : CatchUp(b, p) \/ Rejoin(p, b) \/ \E d \in Dirs : Move(b, p, d)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* PROPERTIES *)

\* R-INV-9: a leader is unfenced, and its directory is online by the metadata.
LeaderOnline ==
    \A p \in Partitions : LET l == meta.leader[p] IN l # NoLeader => Acceptable(meta, l, p)

\* R-INV-10: a leader is in sync.
LeaderInSync == \A p \in Partitions : meta.leader[p] # NoLeader => meta.leader[p] \in Range(meta.isr[p])

=============================================================================
