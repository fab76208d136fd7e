/** fast-check, with examples that are the same in every run of CI. */

import fc from 'fast-check';

if (process.env['CI']) fc.configureGlobal({ seed: 1 });

export default fc;
