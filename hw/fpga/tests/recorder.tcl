# SPDX-License-Identifier: Apache-2.0
# Plays Vivado for tests. Enters: a script of this folder with its arguments, a file with the top module's ports (a line each:
# name, direction, bits) and a mode. Leaves: a file with one record a line, fields separated by tabs, of what the script made
# and set; or the script's error and exit status 1.
#
#   tclsh recorder.tcl PORTS infer|bare RECORDS SCRIPT ARGUMENTS...
#
# The objects of the IP packager (cores, interfaces, maps, registers) are kept as a tree of kind, name and properties. What the
# real packager would refuse is refused here: commands, options, properties and signals of a bus that do not exist, names
# used twice. In mode `infer` packaging finds bus interfaces, memory map and address space from the names of the ports, in mode
# `bare` it finds none: scripts must work either way.

lassign $argv ports_file mode records_file script
set script_arguments [lrange $argv 4 end]

namespace eval recorder {
  variable kinds {}
  variable names {}
  variable parents {}
  variable values {}
  variable count 0
  variable channel [open $::records_file w]
  variable properties {
    project {board_part ip_repo_paths}
    bd_cell {config.*}
    fileset {top}
    core {name version display_name description sdx_kernel sdx_kernel_type vitis_drc ipi_drc supported_families
          auto_family_support_level core_revision}
    user_parameter {}
    port {}
    bus_interface {slave_memory_map_ref master_address_space_ref}
    bus_parameter {value}
    port_map {}
    address_space {range width}
    memory_map {}
    address_block {range width}
    register {address_offset size access description}
    register_parameter {value}
    field {bit_offset bit_width access description}
  }
  # Signals of an AXI4 bus, without identifiers and user signals.
  variable axi {AWVALID AWREADY AWADDR AWLEN AWSIZE AWBURST AWLOCK AWCACHE AWPROT AWQOS AWREGION WVALID WREADY WDATA WSTRB
                WLAST BVALID BREADY BRESP ARVALID ARREADY ARADDR ARLEN ARSIZE ARBURST ARLOCK ARCACHE ARPROT ARQOS ARREGION
                RVALID RREADY RDATA RRESP RLAST}

  proc record {args} {
    variable channel
    puts $channel [join $args "\t"]
  }

  proc create {kind name parent} {
    variable kinds
    variable names
    variable parents
    variable count
    if {[llength [find $kind $parent $name]] != 0} {
      error "$kind $name exists already"
    }
    set handle "$kind#[incr count]"
    dict set kinds $handle $kind
    dict set names $handle $name
    dict set parents $handle $parent
    record object [path $handle] $kind
    return $handle
  }

  # Objects of a kind below a parent, all or those with a name.
  proc find {kind parent {name *}} {
    variable kinds
    variable names
    variable parents
    set found {}
    dict for {handle its_kind} $kinds {
      if {$its_kind eq $kind && [dict get $parents $handle] eq $parent && [string match $name [dict get $names $handle]]} {
        lappend found $handle
      }
    }
    return $found
  }

  proc path {handle} {
    variable names
    variable parents
    set parent [dict get $parents $handle]
    return [expr {$parent eq "" ? [dict get $names $handle] : "[path $parent]/[dict get $names $handle]"}]
  }

  proc remove {handle} {
    variable kinds
    record removed [path $handle]
    dict unset kinds $handle
  }

  # Splits options from values: {option value ...} {value ...}; `known` lists options, those with a value end in a colon.
  proc options {known arguments} {
    set given {}
    set rest {}
    for {set k 0} {$k < [llength $arguments]} {incr k} {
      set word [lindex $arguments $k]
      if {[regexp {^-[a-z_]+$} $word]} {
        if {"$word:" in $known} {
          dict set given $word [lindex $arguments [incr k]]
        } elseif {$word in $known} {
          dict set given $word 1
        } else {
          error "unknown option $word"
        }
      } else {
        lappend rest $word
      }
    }
    return [list $given $rest]
  }

  # get_<kind>s [-quiet] [name] -of_objects parent
  proc getter {kind arguments} {
    lassign [options {-quiet -of_objects:} $arguments] given rest
    if {![dict exists $given -of_objects]} {
      error "get of $kind without -of_objects"
    }
    set found [find $kind [dict get $given -of_objects] {*}$rest]
    if {[llength $found] == 0 && ![dict exists $given -quiet]} {
      error "no $kind $rest"
    }
    return $found
  }

  proc check {handle kind} {
    variable kinds
    if {![dict exists $kinds $handle] || [dict get $kinds $handle] ne $kind} {
      error "'$handle' is no $kind"
    }
  }

  # A bus or signal interface of the ports in `names`.
  proc bus {names vlnv core} {
    variable axi
    set bus [expr {[llength $names] == 1 ? $names : [regsub {_[^_]*$} [lindex $names 0] {}]}]
    set handle [create bus_interface $bus $core]
    record type $bus $vlnv
    foreach name $names {
      if {[llength [find port $core $name]] != 1} {
        error "no port $name"
      }
      set logical $name
      if {$vlnv eq "xilinx.com:interface:aximm_rtl:1.0"} {
        if {[string range $name 0 [string length $bus]] ne "${bus}_"} {
          error "port $name is not of the bus $bus"
        }
        set logical [string toupper [string range $name [string length $bus]+1 end]]
        if {$logical ni $axi} {
          error "AXI has no signal $logical"
        }
      } elseif {$vlnv ni {xilinx.com:signal:clock_rtl:1.0 xilinx.com:signal:reset_rtl:1.0 xilinx.com:signal:interrupt_rtl:1.0}} {
        error "unknown interface $vlnv"
      }
      set pair [create port_map $logical $handle]
      dict set ::recorder::values $pair physical_name $name
      record port_map $bus $logical $name
    }
    return $handle
  }

  # What the packager finds by itself.
  proc infer {core} {
    set buses {}
    foreach port [find port $core] {
      variable names
      set name [dict get $names $port]
      if {[regexp {^(.*_axi_.*)_[^_]*$} $name -> prefix]} {
        dict lappend buses $prefix $name
      }
    }
    dict for {prefix members} $buses {
      bus $members xilinx.com:interface:aximm_rtl:1.0 $core
      if {[string match s_* $prefix]} {
        create address_block reg0 [create memory_map $prefix $core]
      } else {
        create address_space $prefix $core
      }
    }
    bus ap_clk xilinx.com:signal:clock_rtl:1.0 $core
    bus ap_rst_n xilinx.com:signal:reset_rtl:1.0 $core
  }

  # Commands that a script calls with a plain list of arguments, recorded as they are.
  proc plain {args} {
    foreach name $args {
      proc ::$name {args} [format {::recorder::record command %s {*}$args} $name]
    }
  }
}

proc get_property {name handle} {
  if {$handle eq "run impl_1"} {
    set late [expr {[info exists ::env(RECORDER_LATE)] ? $::env(RECORDER_LATE) : ""}]
    return [dict get [dict create PROGRESS 100% STATS.WNS [expr {$late eq "STATS.WNS" ? -0.125 : 0.25}] \
      STATS.WHS [expr {$late eq "STATS.WHS" ? -0.125 : 0.03}]] $name]
  }
  if {[string tolower $name] eq "name"} {
    return [dict get $::recorder::names $handle]
  }
  return [dict get $::recorder::values $handle [string tolower $name]]
}

proc set_property {name value handle} {
  if {$name eq "-dict"} {
    foreach {key one} $value {
      set_property $key $one $handle
    }
    return
  }
  set kind [dict get $::recorder::kinds $handle]
  set known 0
  foreach pattern [dict get $::recorder::properties $kind] {
    set known [expr {$known || [string match $pattern [string tolower $name]]}]
  }
  if {!$known} {
    error "$kind has no property $name"
  }
  ::recorder::record property [::recorder::path $handle] [string tolower $name] $value
}

proc create_project {args} {
  lassign [::recorder::options {-force -part:} $args] given rest
  lassign $rest name folder
  set ::project [::recorder::create project $name ""]
  set ::project_folder $folder
  if {[dict exists $given -part]} {
    ::recorder::record part [dict get $given -part]
  }
  ::recorder::create fileset sources_1 $::project
  file mkdir $folder
}

proc current_fileset {} { return [::recorder::find fileset $::project] }

proc add_files {args} {
  lassign [::recorder::options {-norecurse -fileset:} $args] given rest
  foreach file [lindex $rest 0] {
    if {![file exists $file]} {
      error "no file $file"
    }
    ::recorder::record [expr {[dict exists $given -fileset] ? [dict get $given -fileset] : "file"}] $file
  }
}

proc update_compile_order {args} { ::recorder::options {-fileset:} $args }
proc close_project {args} { ::recorder::options {-delete} $args }

proc package_xo {args} {
  lassign [::recorder::options {-force -xo_path: -kernel_name: -ip_directory: -kernel_xml: -ctrl_protocol:} $args] given rest
  if {[llength $rest] != 0} {
    error "package_xo: $rest"
  }
  dict for {key value} $given {
    ::recorder::record package_xo $key $value
  }
  close [open [dict get $given -xo_path] w]
}

# Block designs. A net joins pins, an interface net two interfaces; in the end every pin of a cell must be joined once.
proc current_project {} { return $::project }
proc update_ip_catalog {} {}
proc get_board_parts {args} {
  lassign [::recorder::options {-quiet} $args] given rest
  return [expr {$::mode eq "infer" ? $rest : {}}]
}
proc create_bd_design {name} { set ::design $name }
set ::pins_of {
  processing_system7 {FCLK_CLK0 FCLK_RESET0_N IRQ_F2P M_AXI_GP0_ACLK S_AXI_HP0_ACLK M_AXI_GP0 S_AXI_HP0}
  zynq_ultra_ps_e {pl_clk0 pl_resetn0 pl_ps_irq0 maxihpm0_fpd_aclk saxihp0_fpd_aclk M_AXI_HPM0_FPD S_AXI_HP0_FPD}
  proc_sys_reset {slowest_sync_clk ext_reset_in peripheral_aresetn}
  smartconnect {aclk aresetn S00_AXI M00_AXI}
  tsr_kernel {ap_clk ap_rst_n interrupt s_axi_control m_axi_gmem}
}
set ::free {}
proc create_bd_cell {args} {
  lassign [::recorder::options {-type: -vlnv:} $args] given rest
  set ip [lindex [split [dict get $given -vlnv] :] 2]
  if {![dict exists $::pins_of $ip]} {
    error "no IP [dict get $given -vlnv]"
  }
  foreach pin [dict get $::pins_of $ip] {
    lappend ::free $rest/$pin
  }
  ::recorder::record cell $rest [dict get $given -vlnv]
  return [::recorder::create bd_cell $rest ""]
}
proc apply_bd_automation {args} {
  lassign [::recorder::options {-rule: -config:} $args] given rest
  ::recorder::check $rest bd_cell
  ::recorder::record automation [dict get $given -rule] [dict get $given -config]
}
proc get_bd_pins {name} {
  if {$name ni $::free} {
    error "no free pin $name"
  }
  return $name
}
proc get_bd_intf_pins {name} { return [get_bd_pins $name] }
proc connect_bd_net {args} {
  foreach pin $args {
    # The driver of a net comes first and may have been joined in another call.
    set ::free [lsearch -all -inline -not -exact $::free $pin]
  }
  ::recorder::record net {*}$args
}
proc connect_bd_intf_net {one other} { connect_bd_net $one $other }
proc get_bd_addr_segs {name} { return $name }
proc assign_bd_address {args} {
  lassign [::recorder::options {-offset: -range:} $args] given rest
  ::recorder::record address $rest {*}$given
}
proc validate_bd_design {} {
  if {[llength $::free] != 0} {
    error "pins that nothing joins: $::free"
  }
}
proc save_bd_design {} {}
proc get_files {name} { return $name }
proc make_wrapper {args} {
  lassign [::recorder::options {-top -files:} $args] given rest
  set file [file join $::project_folder wrapper.v]
  close [open $file w]
  return $file
}
proc launch_runs {args} {
  lassign [::recorder::options {-to_step: -jobs:} $args] given rest
  ::recorder::record run $rest [dict get $given -to_step]
  foreach file {tessera.runs/impl_1/tessera_wrapper.bit tessera.gen/sources_1/bd/tessera/hw_handoff/tessera.hwh} {
    file mkdir [file dirname [file join $::project_folder $file]]
    close [open [file join $::project_folder $file] w]
  }
}
proc wait_on_run {name} {}
proc get_runs {name} { return "run $name" }
proc write_hw_platform {args} {
  lassign [::recorder::options {-fixed -include_bit -force} $args] given rest
  close [open $rest w]
}

::recorder::plain read_xdc read_verilog synth_design create_clock opt_design place_design phys_opt_design route_design report_utilization \
  report_timing_summary write_checkpoint get_ports

namespace eval ipx {
  proc package_project {args} {
    lassign [::recorder::options {-force -import_files -root_dir: -vendor: -library: -taxonomy: -set_current:} $args] given rest
    set ::core [::recorder::create core core ""]
    foreach key {-vendor -library -taxonomy} {
      ::recorder::record package $key [dict get $given $key]
    }
    set channel [open $::ports_file]
    foreach line [split [string trim [read $channel]] \n] {
      ::recorder::create port [lindex $line 0] $::core
    }
    close $channel
    ::recorder::create user_parameter Batch $::core
    ::recorder::create user_parameter AxiBytes $::core
    if {$::mode eq "infer"} {
      ::recorder::infer $::core
    }
  }

  proc unload_core {file} {}
  proc edit_ip_in_project {args} { ::recorder::options {-upgrade: -name: -directory:} $args }
  proc current_core {} { return $::core }
  proc infer_bus_interface {names vlnv core} { return [::recorder::bus $names $vlnv $core] }

  proc associate_bus_interfaces {args} {
    lassign [::recorder::options {-busif: -clock: -reset:} $args] given core
    ::recorder::check $core core
    dict for {key name} $given {
      if {[llength [::recorder::find bus_interface $core $name]] != 1} {
        error "no bus interface $name"
      }
    }
    set what [expr {[dict exists $given -busif] ? "-busif" : "-reset"}]
    ::recorder::record associate [dict get $given $what] [dict get $given -clock]
  }

  proc remove_user_parameter {name core} { ::recorder::remove [::recorder::find user_parameter $core $name] }
  proc remove_memory_map {name core} { ::recorder::remove [::recorder::find memory_map $core $name] }

  foreach kind {user_parameter port bus_interface bus_parameter port_map address_space memory_map} {
    proc get_${kind}s {args} [format {::recorder::getter %s $args} $kind]
  }
  foreach {kind parent} {bus_parameter bus_interface address_space core memory_map core address_block memory_map
                         register address_block field register register_parameter register} {
    proc add_$kind {name parent} [format {::recorder::check $parent %s; return [::recorder::create %s $name $parent]} $parent $kind]
  }
  proc create_xgui_files {core} {}
  proc update_checksums {core} {}
  proc save_core {core} { ::recorder::record saved }
  proc check_integrity {args} {
    lassign [::recorder::options {-kernel -xrt -quiet} $args] given core
    ::recorder::record checked {*}[lsort [dict keys $given]]
  }
}

set argv $script_arguments
set argc [llength $argv]
if {[catch {source $script} message]} {
  puts stderr $message
  exit 1
}
close $::recorder::channel
