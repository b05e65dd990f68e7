# Unity builds: a target's sources are compiled several at a time, each group as one file that includes them. A build
# from nothing then takes about half the processor time, because most of it goes into headers. A change of one source
# compiles its whole group again, so ./dev build switches this off for people who edit.
#
# CMake's own UNITY_BUILD writes absolute paths, so that two clones could not share what ccache keeps. The groups written
# here include their sources by paths from the top of the tree.
#
# Compiled one by one are sources with flags, definitions or precompiled headers of their own, generated sources that are not in a
# group of sluice_group_generated, and sources with SKIP_UNITY_BUILD_INCLUSION: tests replace their objects when they link.
# Names in unnamed namespaces must be unique in a target.
option(SLUICE_UNITY "Compile sources in groups: faster from nothing, slower after a change" OFF)
set(SLUICE_UNITY_SOURCES 64 CACHE STRING "Sources in one group of a unity build")
mark_as_advanced(SLUICE_UNITY_SOURCES)

# Replaces the sources of a target by groups. Runs when the whole tree is configured: sources and their properties
# may be added after the target.
function(sluice_group_sources target)
  get_target_property(directory ${target} SOURCE_DIR)
  get_target_property(binary_directory ${target} BINARY_DIR)
  get_target_property(sources ${target} SOURCES)
  set(alone "")
  set(grouped "")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${directory} NORMALIZE OUTPUT_VARIABLE path)
    set(own "")
    get_source_file_property(generated ${path} TARGET_DIRECTORY ${target} GENERATED)
    if(NOT source MATCHES "\\.cc$" OR source MATCHES "\\$<" OR generated)
      set(own 1)
    endif()
    foreach(property COMPILE_FLAGS COMPILE_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES
            SKIP_PRECOMPILE_HEADERS SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(value ${path} TARGET_DIRECTORY ${target} ${property})
      if(value)
        set(own 1)
      endif()
    endforeach()
    if(own)
      list(APPEND alone ${source})
    else()
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND grouped ${path})
    endif()
  endforeach()
  list(LENGTH grouped count)
  if(count LESS 2)
    return()
  endif()
  # Groups of about the same size, none above the limit.
  math(EXPR groups "(${count} + ${SLUICE_UNITY_SOURCES} - 1) / ${SLUICE_UNITY_SOURCES}")
  foreach(group RANGE 1 ${groups})
    math(EXPR begin "${count} * (${group} - 1) / ${groups}")
    math(EXPR length "${count} * ${group} / ${groups} - ${begin}")
    list(SUBLIST grouped ${begin} ${length} members)
    list(TRANSFORM members REPLACE "(.+)" "#include \"\\1\"\n")
    string(JOIN "" text ${members})
    set(file ${binary_directory}/unity/${target}_${group}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
    # gcc takes types of an unnamed namespace for those of a header when their source is included.
    set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
    list(APPEND alone ${file})
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${alone})
endfunction()

# sluice_unity(TARGET): the target takes part in unity builds.
function(sluice_unity target)
  if(SLUICE_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER DIRECTORY \"${PROJECT_SOURCE_DIR}\" CALL sluice_group_sources ${target})")
  endif()
endfunction()

# sluice_group_generated(GROUP name...): sets GROUP to the generated sources proto/NAME.cc, and in a unity build to one more file
# unity/GROUP.cc, which includes them and alone is compiled.
function(sluice_group_generated group)
  set(sources "")
  set(headers "")
  set(text "")
  foreach(name ${ARGN})
    list(APPEND sources ${PROJECT_BINARY_DIR}/proto/${name}.cc)
    string(MAKE_C_IDENTIFIER ${name} identifier)
    string(APPEND headers "#include \"proto/${name}.h\"\n")
    # Static names that are the same in every file of messages. The headers, which also have them, come first.
    string(APPEND text "#define schemas schemas_of_${identifier}\n"
      "#define file_default_instances file_default_instances_of_${identifier}\n#include \"proto/${name}.cc\"\n"
      "#undef schemas\n#undef file_default_instances\n")
  endforeach()
  if(SLUICE_UNITY)
    set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)  # still made, because the target lists them
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/unity/${group}.cc CONTENT "${headers}${text}" @ONLY)
    list(APPEND sources ${CMAKE_CURRENT_BINARY_DIR}/unity/${group}.cc)
  endif()
  set(${group} ${sources} PARENT_SCOPE)
endfunction()
