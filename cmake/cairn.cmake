# Compiler settings and the functions with which every folder declares its targets.

set(CAIRN_WARNINGS -Wall -Wextra -Wshadow -Wno-restrict)
if(CAIRN_WERROR)
  list(APPEND CAIRN_WARNINGS -Werror)
endif()

# x86-64-v3 is the floor of every program and is checked at start. A compiler that fuses a*b+c
# where it likes would give other bits per instruction set: fusing is written by hand.
set(CAIRN_CODE_FLAGS -march=x86-64-v3 -ffp-contract=off -fno-omit-frame-pointer)

if(CAIRN_SANITIZE)
  string(REPLACE "," ";" sanitizers "${CAIRN_SANITIZE}")
  foreach(sanitizer ${sanitizers})
    list(APPEND CAIRN_CODE_FLAGS -fsanitize=${sanitizer})
    add_link_options(-fsanitize=${sanitizer})
  endforeach()
  list(APPEND CAIRN_CODE_FLAGS -fno-sanitize-recover=all)
  # GCC's sanitizer passes raise false positives of these two.
  list(APPEND CAIRN_WARNINGS -Wno-maybe-uninitialized -Wno-tsan)
endif()

function(cairn_settings target)
  target_compile_options(${target} PRIVATE ${CAIRN_WARNINGS} ${CAIRN_CODE_FLAGS})
endfunction()

# cairn_library(NAME HEADERS h... SOURCES cc... DEPENDS target...)
# A static library cairn_NAME with the alias cairn::NAME. Its headers compile alone: a source
# includes its own header first (tests/tidy_test.py), and the target
# all_verify_interface_header_sets compiles those that have no source.
function(cairn_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS" ${ARGN})
  set(target cairn_${name})
  add_library(${target} STATIC ${ARG_SOURCES} ${ARG_HEADERS})
  add_library(cairn::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  set(without_source)
  foreach(header ${ARG_HEADERS})
    string(REGEX REPLACE "\\.h$" ".cc" source ${header})
    if(NOT source IN_LIST ARG_SOURCES)
      list(APPEND without_source ${header})
    endif()
  endforeach()
  if(without_source)
    target_sources(${target} PUBLIC
      FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${without_source})
  endif()
  target_link_libraries(${target} PUBLIC ${ARG_DEPENDS})
  cairn_settings(${target})
endfunction()

# Sets `result` in the caller to whether one of the targets that follow links gRPC, even far down.
function(cairn_links_grpc result)
  set(rest ${ARGN})
  set(seen)
  set(${result} FALSE PARENT_SCOPE)
  while(rest)
    list(POP_FRONT rest target)
    if(target MATCHES "gRPC::")
      set(${result} TRUE PARENT_SCOPE)
      return()
    endif()
    if(TARGET ${target} AND NOT target IN_LIST seen)
      list(APPEND seen ${target})
      get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
      if(links)
        list(APPEND rest ${links})
      endif()
    endif()
  endwhile()
endfunction()

# What all test programs are compiled with.
function(cairn_test_settings target)
  target_link_libraries(${target} PRIVATE GTest::gmock GTest::gtest_main)
  cairn_settings(${target})
  # Half the time to compile; the libraries that are tested keep their own level.
  # ThreadSanitizer's tests run long enough to repay -O1.
  set(level -O1)
  if(CAIRN_SANITIZE MATCHES "address")
    set(level -O0)
  endif()
  # At this level g++ 12 sees writes past the end of strings that are not there. All with -pthread:
  # they share precompiled headers.
  target_compile_options(${target} PRIVATE
    ${level} -Wno-array-bounds -Wno-stringop-overflow -pthread)
endfunction()

# The headers that nearly every test begins with, compiled once for all.
function(cairn_precompile_test_headers target)
  if(NOT TARGET cairn_test_headers)
    set(source ${PROJECT_BINARY_DIR}/tests/test_headers.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "// Carries the precompiled headers of the tests.\n")
    add_library(cairn_test_headers OBJECT ${source})
    cairn_test_settings(cairn_test_headers)
    target_precompile_headers(cairn_test_headers PRIVATE
      <gmock/gmock.h> <gtest/gtest.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
      <absl/time/time.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM cairn_test_headers)
endfunction()

# cairn_test(NAME LABEL label SOURCES cc... DEPENDS target... [TIMEOUT seconds])
# One GoogleTest program, one CTest test. Labels: unit, bits (equality of every bit), faults,
# cluster (real processes), full (what takes hours; tests/run.sh --full). A test that does not link
# gRPC has the label no_grpc too: gRPC's library is not instrumented and its headers are slow.
function(cairn_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  target_compile_definitions(${name} PRIVATE
    CAIRN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests" CAIRN_BIN="${CMAKE_BINARY_DIR}/bin")
  cairn_test_settings(${name})
  if(CAIRN_PRECOMPILED_TESTS)
    cairn_precompile_test_headers(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name})
  set(labels ${ARG_LABEL})
  cairn_links_grpc(links_grpc ${ARG_DEPENDS})
  if(NOT links_grpc)
    list(APPEND labels no_grpc)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
