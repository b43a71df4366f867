# Runs one file of Valkey's own test suite against a running server, and prints the outcome of each test. run.py starts it:
#
#     cd SUITE && tclsh suite.tcl HOST PORT KEYSPACE FILE [NUMBER ..]       NUMBER: a test to leave out, counted from 1
#
# The suite's own runner stops at the first command that is refused outside a test, and each of its files begins with FLUSHALL. This runner reads
# the suite's procedures and its files unchanged, and then replaces these:
#
#   FLUSHALL            SCAN and DEL of all keys
#   start_server        uses the running server, and does not change its configuration
#   test                goes on after a failure, with a new connection
#   a reply             is waited for at most five seconds
#   outside a test      a refused command is passed over
#
# It prints a line for each event: a word, and then the event's texts in base64.
#
#   skip why            a test, or a block of tests, that the suite does not run against an external server, or a test that sends no command
#   begin number name
#   end number name error replaced refused    error: empty if the test passed; refused: the command that made it fail, or that it passed without
#   trouble error       an error outside a test: the tests after it in this block are lost
#   done
package require Tcl 8.6

# The suite's files use the same global variables as this one, but not its namespace.
namespace eval own {
    lassign $::argv host port keyspace file
    variable left_out [lrange $::argv 4 end]
    variable number 0       ;# of the test
    variable in_test 0
    variable sent 0         ;# how many commands were sent
    variable refused {}     ;# the refusals of this test: the name of a command, and the error
    variable replaced {}    ;# the commands of this test that were replaced
    variable readable       ;# the clients that have replies
    variable arrived        ;# for each channel, whether a reply has come in time
    variable resp           ;# for each client, the version of RESP that it has chosen
    variable control        ;# a client for the commands that replace others
    array set arrived {}
    array set resp {}
}

# The suite's helper procedures and variables. Not its main program.
proc read_helpers {path} {
    set channel [open $path]
    set command {}
    while {[gets $channel line] >= 0} {
        if {$line eq "# parse arguments"} break
        append command $line "\n"
        if {![info complete $command]} continue
        if {[regexp {^\s*(proc|source|set ::|set tcl_precision)} $command]} {
            uplevel #0 $command
        }
        set command {}
    }
    # After the arguments come more procedures.
    while {[gets $channel line] >= 0} {
        append command $line "\n"
        if {![info complete $command]} continue
        if {[regexp {^\s*proc } $command]} {
            uplevel #0 $command
        }
        set command {}
    }
    close $channel
}
read_helpers tests/test_helper.tcl

set ::host $::own::host
set ::port $::own::port
set ::external 1
set ::singledb 1
set ::ignoreencoding 1
set ::ignoredigest 1
set ::durable 1
set ::numclients 1
set ::test_server_fd {}
set ::curfile tests/$::own::file.tcl
# What an external server of Valkey may lack, too.
set ::denytags {
    needs:debug needs:repl needs:save needs:reset needs:latency needs:pfdebug needs:local-process needs:config-maxmemory needs:config-resetstat
}
expr {srand(1)}

proc emit {word args} {
    foreach text $args {append word "\t" [binary encode base64 [encoding convertto utf-8 $text]]}
    puts $word
    flush stdout
}
proc send_data_packet {channel status text {elapsed 0}} {
    if {$status in {err exception}} {emit trouble $text}
}

# --- Commands that are replaced, and replies.

proc note_replaced {command} {
    if {$command ni $::own::replaced} {lappend ::own::replaced $command}
}

# What stands for the refused command in the list.
proc refused_name {words error} {
    set name [string toupper [lindex $words 0]]
    if {[regexp {^EXECABORT} $error]} {return MULTI}
    regexp {^UNSUPPORTED ([A-Z_]+): } $error _ name
    if {$name in {ACL CLIENT CLUSTER COMMAND CONFIG DEBUG FUNCTION LATENCY MEMORY OBJECT PUBSUB SCRIPT SLOWLOG XGROUP XINFO}} {
        append name " " [string toupper [lindex $words 1]]
    } elseif {$name eq "SET"} {
        foreach word [lrange $words 3 end] {
            if {[string toupper $word] in {NX XX GET EX PX EXAT PXAT KEEPTTL}} {return "SET [string toupper $word]"}
        }
    }
    return [string trim $name]
}

proc is_refusal {error} {
    foreach pattern {{UNSUPPORTED *} {EXECABORT the keyspace*} {ERR unknown command*} {ERR unknown subcommand*} {NOKEYSPACE *}} {
        if {[string match $pattern $error]} {return 1}
    }
    return 0
}

proc wait_for_reply {channel} {
    if {$channel eq {} || [chan pending input $channel] > 0} return
    fileevent $channel readable [list set ::own::arrived($channel) 1]
    set timer [after 5000 [list set ::own::arrived($channel) 0]]
    vwait ::own::arrived($channel)
    after cancel $timer
    fileevent $channel readable {}
    if {!$::own::arrived($channel)} {error "no reply within five seconds"}
}

if {$::own::keyspace ne {}} {
    rename valkey client_of_the_suite
    proc valkey {args} {
        set client [client_of_the_suite {*}$args]
        set channel [$client channel]
        puts -nonewline $channel "SELECT $::own::keyspace\r\n"
        flush $channel
        if {[gets $channel reply] < 0 || $reply ne "+OK\r"} {error "SELECT $::own::keyspace: $reply"}
        return $client
    }
}

# No command blocks here. The suite would wait ten seconds for it.
proc wait_for_blocked_client {args} {error "there are no blocked clients"}
proc wait_for_blocked_clients_count {args} {error "there are no blocked clients"}

rename ::valkey::valkey_read_reply ::valkey::read_reply_of_the_suite
proc ::valkey::valkey_read_reply {id channel} {
    wait_for_reply $channel
    set failed [catch {::valkey::read_reply_of_the_suite $id $channel} reply]
    # In raw mode an error is a line.
    set error [expr {$failed ? $reply : [string range $reply 1 end]}]
    if {($failed || $::valkey::readraw($id)) && [is_refusal $error]} {
        lappend ::own::refused [list [refused_name $::valkey::curr_argv($id) $error] $error]
        if {!$::own::in_test} return
    }
    return -code $failed $reply
}

rename ::valkey::__dispatch__raw__ ::valkey::dispatch_of_the_suite
proc ::valkey::__dispatch__raw__ {id method words} {
    incr ::own::sent
    if {!$::valkey::blocking($id)} {
        return [::valkey::dispatch_of_the_suite $id $method $words]
    }
    set plain [expr {!$::valkey::deferred($id) && !$::valkey::readraw($id)}]
    switch [string toupper $method] {
        FLUSHALL {
            note_replaced [string toupper $method]
            delete_all [expr {$plain ? $id : $::own::control}]
            # The reply comes when the test reads it.
            return [expr {$plain ? "OK" : [::valkey::dispatch_of_the_suite $id echo OK]}]
        }
        HELLO {
            set ::own::resp($id) [lindex $words 0]
        }
    }
    return [::valkey::dispatch_of_the_suite $id $method $words]
}

proc list_keys {id pattern} {
    set cursor 0
    array set found {}
    while 1 {
        set reply [::valkey::dispatch_of_the_suite $id scan [list $cursor match $pattern count 1000]]
        if {$reply eq "QUEUED"} {return $reply}
        lassign $reply cursor keys
        foreach key $keys {set found($key) 1}
        if {$cursor == 0} {return [array names found]}
    }
}

proc delete_all {id} {
    set keys [list_keys $id *]
    if {$keys eq "QUEUED"} return
    while {[llength $keys]} {
        ::valkey::dispatch_of_the_suite $id del [lrange $keys 0 499]
        set keys [lrange $keys 500 end]
    }
}

# --- Servers and tests.

proc push_server {} {
    set client [valkey $::host $::port 0 0]
    lappend ::servers [dict create host $::host port $::port config [dict create port $::port] client $client]
    r flushall
}

proc start_server {options {code undefined}} {
    set tags {}
    foreach {option value} $options {
        if {$option eq "tags"} {set tags [string map {\" ""} $value]}
    }
    with_tags $tags {
        push_server
        if {[catch {uplevel 1 $code} error]} {
            if {[string match "couldn't open socket*" $error]} {error $error}
            emit trouble "$error\n$::errorInfo"
        }
        catch {[srv 0 client] close}
        set ::servers [lrange $::servers 0 end-1]
    }
}
proc start_cluster {masters replicas options code args} {emit skip "a cluster of Valkey"}
proc start_multiple_servers {number options code} {emit skip "several servers"}
proc tags {tags code} {with_tags [string map {\" ""} $tags] {uplevel 1 $code}}
proc with_tags {tags code} {
    set before $::tags
    set ::tags [concat $::tags $tags]
    if {[tags_acceptable $::tags why]} {
        uplevel 1 $code
    } else {
        emit skip $why
    }
    set ::tags $before
}

proc test {name code {expected undefined} {tags {}}} {
    set tags [concat $::tags $tags]
    if {![tags_acceptable $tags why]} {
        emit skip $why
        return
    }
    set number [incr ::own::number]
    if {$number in $::own::left_out} return
    emit begin $number $name
    set before [list $::own::in_test $::own::refused $::own::replaced]
    lassign {1 {} {}} ::own::in_test ::own::refused ::own::replaced
    set client [client_state]
    set sent $::own::sent
    set failed [expr {[catch {uplevel 1 $code} result] ni {0 2}}]
    set error {}
    set compares 1
    if {$failed && [string match "assertion:*" $result]} {
        set error [string range $result 10 end]
    } elseif {$failed} {
        set error "error: $result"
        set compares 0
    } elseif {$expected ne "undefined" && $expected ne $result && ![string match $expected $result]} {
        set error "Expected '$expected' to equal or match '$result'"
    }
    if {$error eq {} && $::own::sent == $sent && ![string match *socket* $code]} {
        emit skip "sends no command"
    } else {
        if {$error ne {}} read_leftovers
        emit end $number $name $error [join $::own::replaced ", "] [cause $error $compares]
    }
    lassign $before ::own::in_test ::own::refused ::own::replaced
    if {$error ne {} && [llength $::servers]} {new_client $client}
}

# Takes the replies that the failed test has not read: a refusal may be among them.
proc read_leftovers {} {
    while 1 {
        foreach id [array names ::valkey::fd] {
            set channel $::valkey::fd($id)
            if {$channel eq {} || !$::valkey::deferred($id) || !$::valkey::blocking($id)} continue
            fileevent $channel readable "lappend ::own::readable {$id $channel}; fileevent $channel readable {}"
            lappend watched $channel
        }
        if {![info exists watched]} return
        set ::own::readable {}
        after 20 {lappend ::own::readable end}
        while {"end" ni $::own::readable} {vwait ::own::readable}
        foreach channel $watched {catch {fileevent $channel readable {}}}
        if {$::own::readable eq "end"} return
        foreach client [lrange $::own::readable 0 end-1] {catch {::valkey::valkey_read_reply {*}$client}}
        unset watched
    }
}

# The refused command that made the test fail. (If it passed: the first refused command.) If the test compared a value, the message shows the refusal. If it stopped for another reason
# (no reply, no blocked client, a variable that was not set), it was the test's first refusal.
proc cause {error compares} {
    foreach refusal $::own::refused {
        if {[string first [string range [lindex $refusal 1] 0 60] $error] >= 0} {
            return [lindex $refusal 0]
        }
    }
    if {!$compares || $error eq {}} {return [lindex $::own::refused 0 0]}
}

proc client_state {} {
    if {![llength $::servers]} return
    regexp {\d+$} [srv 0 client] id
    set chosen 2
    if {[info exists ::own::resp($id)]} {set chosen $::own::resp($id)}
    list $::valkey::deferred($id) $::valkey::readraw($id) $chosen
}

# The connection of a failed test may have replies that were not read.
proc new_client {state} {
    reconnect
    set client [srv 0 client]
    lassign $state deferred raw resp
    if {$resp == 3} {$client hello 3}
    $client readraw $raw
    $client deferred $deferred
}

set ::own::control [string trim [regexp -inline {\d+$} [valkey $::host $::port 0 0]]]
if {[catch {source tests/$::own::file.tcl} error]} {
    if {[string match "couldn't open socket*" $error]} {error $error}
    emit trouble "$error\n$::errorInfo"
}
emit done
