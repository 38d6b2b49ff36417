// What the client tests for Node share: how results are counted.
// SPDX-License-Identifier: Apache-2.0

export async function main(tests) {
  let failed = 0;
  for (const [name, run] of Object.entries(tests)) {
    try {
      await run();
      console.log("ok    " + name);
    } catch (e) {
      failed++;
      console.log("FAIL  " + name + "\n" + e.stack);
    }
  }
  console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
